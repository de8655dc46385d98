"""What our own layer reads by itself keeps the interpreter no longer than what the nodes read: a request for parameters
and an announcement. tests/nodes/test_interpreter_kept.py has the nodes' part."""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.ros import deserialize_message
from tests.nodes.interpreter import keeps

__all__ = ["keeps"]


def test_a_request_for_parameters_and_an_announcement(keeps: Callable[..., bool]) -> None:
    from auras_ros.ros.dds import announced
    from auras_ros.ros.dds.messages import message_type, serialize
    from auras_ros.ros.dds.service import _MAX_REQUEST_BYTES

    request = message_type("rcl_interfaces/srv/GetParameters_Request")
    payload = b"".join(serialize(request(names=["x" * 7] * (_MAX_REQUEST_BYTES // 12 - 10))))
    assert 0.9 * _MAX_REQUEST_BYTES < len(payload) <= _MAX_REQUEST_BYTES
    assert not keeps(lambda: deserialize_message(payload, request))

    gid = message_type("rmw_dds_common/msg/Gid")(data=bytes(16))
    node = message_type("rmw_dds_common/msg/NodeEntitiesInfo")(
        node_namespace="/", node_name="n", reader_gid_seq=[gid] * 8_000, writer_gid_seq=[]
    )
    said = b"".join(serialize(message_type(announced.INFO)(gid=gid, node_entities_info_seq=[node])))
    assert 0.9 * announced.MAX_BYTES < len(said) <= announced.MAX_BYTES
    assert not keeps(lambda: announced.read(said))
