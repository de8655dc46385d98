"""From messages to tensors: latest-frame slots, decoding, sync, history, preprocessing.

The agent node, training and lockstep evaluation run this same code. It uses neither ROS nor torch, reads no clock, and
names every reason why there is no observation.
"""

from .arrivals import Arrivals as Arrivals
from .assemble import Assembler as Assembler
from .assemble import Observation as Observation
from .camera import CameraSpec as CameraSpec
from .camera import Crop as Crop
from .camera import Pad as Pad
from .camera import Resize as Resize
from .checks import SpecError as SpecError
from .fault import FaultName as FaultName
from .fault import ObservationError as ObservationError
from .fault import ObservationFault as ObservationFault
from .history import History as History
from .image_files import REQUEST_FILES as REQUEST_FILES
from .image_files import compressed_size as compressed_size
from .image_files import decode_compressed as decode_compressed
from .image_files import sent_encoding as sent_encoding
from .images import MAX_MESSAGE_BYTES as MAX_MESSAGE_BYTES
from .images import MAX_PIXELS as MAX_PIXELS
from .images import decode_raw as decode_raw
from .picture import Picture as Picture
from .preprocess import Preprocessor as Preprocessor
from .preprocess import resizes_first as resizes_first
from .slot import LatestSlot as LatestSlot
from .slot import Stamped as Stamped
from .spec import ObservationSpec as ObservationSpec
from .spec import StateSpec as StateSpec
from .state import JointMap as JointMap
from .sync import synchronize as synchronize
