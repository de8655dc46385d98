"""From messages to tensors: latest-frame slots, decoding, sync, history, preprocessing.

The agent node, training and lockstep evaluation run this same code. It knows neither ROS nor torch, reads no
clock, and names every reason why there is no observation.
"""

from __future__ import annotations

from .arrivals import Arrivals
from .assemble import Assembler, Observation
from .camera import CameraSpec, Crop, ImageNormalization, Pad, Resize
from .checks import SpecError
from .fault import FaultName, ObservationError, ObservationFault
from .history import History
from .images import MAX_PIXELS, compressed_size, decode_compressed, decode_raw
from .picture import Picture
from .preprocess import Prepared, Preprocessor
from .slot import LatestSlot, Stamped
from .spec import ObservationSpec, StateSpec
from .state import JointMap
from .sync import Synced, synchronize

__all__ = [
    "MAX_PIXELS",
    "Arrivals",
    "Assembler",
    "CameraSpec",
    "Crop",
    "ObservationFault",
    "FaultName",
    "History",
    "JointMap",
    "LatestSlot",
    "ImageNormalization",
    "Observation",
    "ObservationError",
    "ObservationSpec",
    "Pad",
    "Picture",
    "Prepared",
    "Preprocessor",
    "Resize",
    "SpecError",
    "Stamped",
    "StateSpec",
    "Synced",
    "compressed_size",
    "decode_compressed",
    "decode_raw",
    "synchronize",
]
