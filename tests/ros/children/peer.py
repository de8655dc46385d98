"""A peer in another process: echoes strings and images, answers a service, latches a message, beats."""

from __future__ import annotations

import contextlib

from auras_ros import ros
from auras_ros.ros.msg import Float64MultiArray, Image, String
from auras_ros.ros.srv import SetBool

LATCHED = ros.QoSProfile(depth=1, durability=ros.DurabilityPolicy.TRANSIENT_LOCAL)
BEAT = ros.QoSProfile(
    depth=1,
    deadline=ros.Duration(nanoseconds=100_000_000),
    liveliness=ros.LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=ros.Duration(seconds=2),
)


def main() -> None:
    ros.init(args=[])
    node = ros.Node("peer", namespace="/test")
    pong = node.create_publisher(String, "pong", 10)
    back = node.create_publisher(Image, "image_back", 1)
    latched = node.create_publisher(String, "latched", LATCHED)
    beat = node.create_publisher(Float64MultiArray, "beat", BEAT)

    def answer(request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        response.success, response.message = request.data, "from the peer"
        return response

    node.create_subscription(String, "ping", lambda message: pong.publish(String(data=message.data.upper())), 10)
    node.create_subscription(Image, "image", back.publish, 1)
    node.create_service(SetBool, "~/set", answer)
    node.create_timer(0.04, lambda: beat.publish(Float64MultiArray(data=[1.0])))
    latched.publish(String(data="an old one"))
    latched.publish(String(data="the last one"))
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
