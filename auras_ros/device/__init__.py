"""Where work runs: lanes and captured stages on a CPU, a GPU, or in virtual time. It knows no policy and no frame."""

from auras_ros.device.cores import checked, occupy
from auras_ros.device.lane import Device, DeviceError, Lane, Mark, Stage
from auras_ros.device.make import make_device
from auras_ros.device.spans import Span, Spans

__all__ = ["Device", "DeviceError", "Lane", "Mark", "Span", "Spans", "Stage", "checked", "make_device", "occupy"]
