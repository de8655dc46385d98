"""A node with a parameter of every kind, for others to describe, get and set; sets from afar are its own matter."""

from __future__ import annotations

import contextlib

from auras_ros import ros
from auras_ros.ros.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult

Type = ros.Parameter.Type


def agree(parameters: list[ros.Parameter]) -> SetParametersResult:
    if any(parameter.value == 13 for parameter in parameters):
        return SetParametersResult(successful=False, reason="thirteen")
    if any(parameter.value == 666 for parameter in parameters):
        raise RuntimeError("a broken callback")
    return SetParametersResult(successful=True)


def main() -> None:
    ros.init(args=[])
    node = ros.Node("store", namespace="/test")
    whole = IntegerRange(from_value=0, to_value=1000, step=1)
    unit = FloatingPointRange(from_value=0.0, to_value=1.0, step=0.25)
    node.declare_parameter("count", 7, ParameterDescriptor(description="how many", integer_range=[whole],
                                                           additional_constraints="not thirteen"))  # fmt: skip
    node.declare_parameter("gain", 0.5, ParameterDescriptor(floating_point_range=[unit]))
    node.declare_parameter("fixed", "text", ParameterDescriptor(read_only=True))
    node.declare_parameter("free", 1, ParameterDescriptor(dynamic_typing=True))
    node.declare_parameter("later", Type.DOUBLE)
    node.declare_parameter("flag", True)
    node.declare_parameter("arm.left.joints", ["a", "b"])
    node.declare_parameter("arm.left.limits", [1.0, 2.0])
    node.declare_parameter("arm.name", "left")
    node.declare_parameter("mask", [True, False])
    node.declare_parameter("ids", [1, 2])
    node.declare_parameter("raw", [b"\1", b"\2"])
    node.add_on_set_parameters_callback(agree)
    print("ready", flush=True)
    with contextlib.suppress(KeyboardInterrupt, ros.ExternalShutdownException):
        ros.spin(node)
    ros.try_shutdown()


main()
