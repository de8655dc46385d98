"""Where work runs: lanes and captured stages on a CPU or a GPU. No policies or frames in it."""

from auras_ros.device.cores import checked as checked
from auras_ros.device.cores import occupy as occupy
from auras_ros.device.lane import Device as Device
from auras_ros.device.lane import DeviceError as DeviceError
from auras_ros.device.lane import FolderError as FolderError
from auras_ros.device.lane import Lane as Lane
from auras_ros.device.lane import Mark as Mark
from auras_ros.device.lane import Stage as Stage
from auras_ros.device.lane import launches_ahead as launches_ahead
from auras_ros.device.make import make_device as make_device
from auras_ros.device.offload import Offload as Offload
from auras_ros.device.spans import Span as Span
from auras_ros.device.spans import Spans as Spans
from auras_ros.device.staging import Download as Download
from auras_ros.device.staging import Upload as Upload
from auras_ros.device.uncaptured import Reasons as Reasons
from auras_ros.device.uncaptured import cannot_capture as cannot_capture
from auras_ros.device.uncaptured import in_words as in_words
from auras_ros.device.weights import MB as MB
