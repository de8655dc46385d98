"""From chunks to commands: channel contract, alignment by executed index, seams, limits, safety states.

The actuator node and lockstep evaluation run this same code. It imports neither ROS nor torch, reads no clock
and never publishes.
"""

from __future__ import annotations

from .ahead import Ahead
from .chunk import Chunk, Provenance
from .command import Command, Horizon
from .contract import Channel, ChannelKind, Contract, ContractError, HoldPolicy, Interpolation
from .ensemble import DEFAULT_ENSEMBLE_DECAY
from .limits import DEFAULT_CLIP_TOLERANCE, Limits
from .options import SEAMS
from .safety import Event, SafetyState
from .stream import ActionStream
from .urdf import JointLimit, joint_limits, tighten
from .verdict import Accepted, ChunkRefusal, Rejected
from .wire import WireChunk, WireDim, from_wire, to_wire

__all__ = [
    "DEFAULT_CLIP_TOLERANCE",
    "DEFAULT_ENSEMBLE_DECAY",
    "SEAMS",
    "Accepted",
    "ActionStream",
    "Ahead",
    "Channel",
    "ChannelKind",
    "Chunk",
    "Command",
    "Contract",
    "ContractError",
    "Event",
    "HoldPolicy",
    "Horizon",
    "Interpolation",
    "JointLimit",
    "Limits",
    "Provenance",
    "ChunkRefusal",
    "Rejected",
    "SafetyState",
    "WireChunk",
    "WireDim",
    "from_wire",
    "joint_limits",
    "tighten",
    "to_wire",
]
