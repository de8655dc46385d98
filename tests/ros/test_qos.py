"""Profiles become the DDS policies that rmw_cyclonedds makes of them, read back from libddsc."""

from __future__ import annotations

import ctypes as ct

import pytest

from auras_ros.ros.dds import library as dds
from auras_ros.ros.dds import qos
from auras_ros.ros.dds.clock import Duration
from auras_ros.ros.dds.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    InvalidQoSProfileException,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
    dds_qos,
)

_c = dds.declare
get_history = _c(dds._LIBRARY, "dds_qget_history", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_int), ct.POINTER(ct.c_int32))
get_deadline = _c(dds._LIBRARY, "dds_qget_deadline", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_int64))
get_lifespan = _c(dds._LIBRARY, "dds_qget_lifespan", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_int64))
get_liveliness = _c(
    dds._LIBRARY, "dds_qget_liveliness", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_int), ct.POINTER(ct.c_int64)
)
get_autodispose = _c(dds._LIBRARY, "dds_qget_writer_data_lifecycle", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_bool))
get_service = _c(
    dds._LIBRARY, "dds_qget_durability_service", ct.c_bool, ct.c_void_p, ct.POINTER(ct.c_int64), ct.POINTER(ct.c_int),
    ct.POINTER(ct.c_int32), ct.POINTER(ct.c_int32), ct.POINTER(ct.c_int32), ct.POINTER(ct.c_int32),
)  # fmt: skip


def mapped(profile: QoSProfile) -> dict[str, object]:
    kind, number, time = ct.c_int(), ct.c_int32(), ct.c_int64()
    result: dict[str, object] = {}
    with dds_qos(profile, b"typehash=x;") as handle:
        get_history(handle, kind, number)
        result["history"] = kind.value, number.value
        dds.qget_reliability(handle, kind, time)
        result["reliable"] = kind.value == 1
        dds.qget_durability(handle, kind)
        result["transient_local"] = kind.value == 1
        get_deadline(handle, time)
        result["deadline"] = time.value
        get_lifespan(handle, time)
        result["lifespan"] = time.value
        get_liveliness(handle, kind, time)
        result["liveliness"] = kind.value, time.value
        autodispose = ct.c_bool()
        get_autodispose(handle, autodispose)
        result["autodispose"] = autodispose.value
        result["user_data"] = dds.user_data_of(handle)
    return result


def test_default_profile() -> None:
    infinite = dds.INFINITE_NS
    assert mapped(qos.qos_profile_default) == {
        "history": (0, 10), "reliable": True, "transient_local": False, "deadline": infinite, "lifespan": infinite,
        "liveliness": (0, infinite), "autodispose": False, "user_data": b"typehash=x;",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (qos.qos_profile_sensor_data, {"history": (0, 5), "reliable": False}),
        (qos.qos_profile_services_default, {"history": (0, 10), "reliable": True, "transient_local": False}),
        (qos.qos_profile_parameters, {"history": (0, 1000)}),
        (qos.qos_profile_rosout_default, {"transient_local": True, "lifespan": 10**10}),
        (qos.qos_profile_system_default, {"history": (0, 1), "reliable": True, "transient_local": False}),
        (QoSProfile(history=HistoryPolicy.KEEP_ALL), {"history": (1, -1)}),
        (QoSProfile(depth=1, deadline=Duration(seconds=0.1)), {"deadline": 10**8}),
        (QoSProfile(depth=1, liveliness=LivelinessPolicy.MANUAL_BY_TOPIC,
                    liveliness_lease_duration=Duration(seconds=0.3)), {"liveliness": (2, 3 * 10**8)}),
    ],
)  # fmt: skip
def test_mapping(profile: QoSProfile, expected: dict[str, object]) -> None:
    found = mapped(profile)
    assert {key: found[key] for key in expected} == expected


def test_a_latched_writer_keeps_its_own_depth_for_late_joiners() -> None:
    with dds_qos(QoSProfile(depth=7, durability=DurabilityPolicy.TRANSIENT_LOCAL)) as handle:
        delay, kind, depth, a, b, c = ct.c_int64(), ct.c_int(), ct.c_int32(), ct.c_int32(), ct.c_int32(), ct.c_int32()
        get_service(handle, delay, kind, depth, a, b, c)
    assert (kind.value, depth.value, a.value, b.value, c.value) == (0, 7, -1, -1, -1)


def test_profiles_need_history_or_depth() -> None:
    for arguments in ({}, {"history": HistoryPolicy.KEEP_LAST}, {"depth": -1}):
        with pytest.raises(InvalidQoSProfileException):
            QoSProfile(**arguments)  # type: ignore[arg-type]
    assert QoSProfile.coerce(3) == QoSProfile(depth=3, reliability=ReliabilityPolicy.RELIABLE)
    with pytest.raises(TypeError, match="qos_profile"):
        QoSProfile.coerce("sensor_data")  # type: ignore[arg-type]


def test_a_missing_symbol_names_itself_and_the_pinned_version() -> None:
    with pytest.raises(ImportError, match=r"dds_no_such_call.*11\.0\.1"):
        dds.declare(dds._LIBRARY, "dds_no_such_call", ct.c_int32)
