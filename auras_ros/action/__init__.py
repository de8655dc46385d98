"""From chunks to commands: channel contract, alignment by executed index, seams, limits, safety states.

The actuator node and lockstep evaluation run this same code. It imports neither ROS nor torch, reads no clock
and never publishes.
"""

from .ahead import Ahead as Ahead
from .chunk import Chunk as Chunk
from .chunk import Provenance as Provenance
from .command import Command as Command
from .command import Horizon as Horizon
from .contract import Channel as Channel
from .contract import ChannelKind as ChannelKind
from .contract import Contract as Contract
from .contract import ContractError as ContractError
from .contract import HoldPolicy as HoldPolicy
from .contract import Interpolation as Interpolation
from .ensemble import DEFAULT_ENSEMBLE_DECAY as DEFAULT_ENSEMBLE_DECAY
from .limits import DEFAULT_CLIP_TOLERANCE as DEFAULT_CLIP_TOLERANCE
from .limits import Limits as Limits
from .options import SEAMS as SEAMS
from .options import ActionStreamOptions as ActionStreamOptions
from .safety import Event as Event
from .safety import SafetyState as SafetyState
from .stream import ActionStream as ActionStream
from .urdf import JointLimit as JointLimit
from .urdf import joint_limits as joint_limits
from .urdf import tighten as tighten
from .verdict import Accepted as Accepted
from .verdict import ChunkRefusal as ChunkRefusal
from .verdict import Rejected as Rejected
from .wire import from_wire as from_wire
from .wire import to_wire as to_wire
