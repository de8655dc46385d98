"""A publisher and a subscription with a QoS from the command line that tell their events on `events`, as JSON.

Arguments: 'offer' or 'request', then QoSProfile's fields as JSON (durations in ms).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

from auras_ros import ros
from auras_ros.ros.msg import String

ENUMS = {"reliability": ros.ReliabilityPolicy, "durability": ros.DurabilityPolicy, "liveliness": ros.LivelinessPolicy}


def profile(text: str) -> ros.QoSProfile:
    fields: dict[str, Any] = {"depth": 1}
    for name, value in json.loads(text).items():
        fields[name] = ENUMS[name][value] if name in ENUMS else ros.Duration(nanoseconds=value * 1_000_000)
    return ros.QoSProfile(**fields)


def main() -> None:
    side, wanted = sys.argv[1], profile(sys.argv[2])
    ros.init(args=[])
    node = ros.Node("watcher", namespace="/test")
    latched = ros.QoSProfile(depth=100, durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)
    events = node.create_publisher(String, "events", latched)

    def tell(kind: str) -> Callable[[Any], None]:
        def publish(info: Any) -> None:
            policy = getattr(info, "last_policy_kind", None)
            text = {"kind": kind, "policy": policy.name if policy is not None else ""}
            if hasattr(info, "alive_count"):
                text["alive"] = info.alive_count
            events.publish(String(data=json.dumps(text)))

        return publish

    kinds = ["deadline", "liveliness", "incompatible_qos", "matched"]
    callbacks = {kind: tell(kind) for kind in kinds}
    if side == "offer":
        node.create_publisher(String, "thing", wanted, event_callbacks=ros.PublisherEventCallbacks(**callbacks))
    else:
        callbacks["message_lost"] = tell("message_lost")
        node.create_subscription(
            String, "thing", lambda _: None, wanted, event_callbacks=ros.SubscriptionEventCallbacks(**callbacks)
        )
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
