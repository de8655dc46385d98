"""Where work runs: lanes and captured stages on a CPU, a GPU, or in virtual time. No policies or frames in it."""

from auras_ros.device.cores import checked, occupy
from auras_ros.device.lane import Device, DeviceError, Lane, Mark, Stage, launches_ahead
from auras_ros.device.make import make_device
from auras_ros.device.offload import Offload
from auras_ros.device.spans import Span, Spans
from auras_ros.device.staging import Download, Upload
from auras_ros.device.uncaptured import Reasons, cannot_capture, in_words
from auras_ros.device.weights import MB

__all__ = [
    "MB",
    "Device",
    "DeviceError",
    "Download",
    "Lane",
    "Mark",
    "Offload",
    "Reasons",
    "Span",
    "Spans",
    "Stage",
    "Upload",
    "cannot_capture",
    "checked",
    "in_words",
    "launches_ahead",
    "make_device",
    "occupy",
]
