"""Conversion between the project's own data and ROS messages: chunks, actions, and the JSON texts between processes.

Both directions are here, so that one node reads what the other writes. Messages are not trusted: a malformed one raises
MessageError, which names the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.action import Chunk, Command, Contract, from_wire, to_wire
from auras_ros.nodes.common.texts import MAX_TEXT, MessageError, read_json
from auras_ros.observation import MAX_MESSAGE_BYTES, MAX_PIXELS, decode_raw
from auras_ros.ros.bounded import PayloadLimits
from auras_ros.ros.msg import Float64MultiArray, MultiArrayDimension, MultiArrayLayout, String
from auras_ros.ros.received_image import ReceivedImage, read_compressed, read_image

# Limits of payloads that anybody may publish.
IMAGE_LIMITS = PayloadLimits(MAX_MESSAGE_BYTES)
STATE_LIMITS = PayloadLimits(128 * 1024)  # of joint_states: some thousand joints
JSON_LIMITS = PayloadLimits(MAX_TEXT + 1024)  # of a text that `read_json` reads


def host_id() -> str:
    """The boot id: processes with the same one share CLOCK_MONOTONIC."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def chunk_message(chunk: Chunk, contract: Contract) -> Float64MultiArray:
    """A chunk with its provenance as one multi-array (see docs/interfaces.md)."""
    wire, data = to_wire(chunk, contract)
    dims = [MultiArrayDimension(label=label, size=size, stride=stride) for label, size, stride in wire]
    return Float64MultiArray(layout=MultiArrayLayout(dim=dims, data_offset=0), data=data)


def read_chunk(message: Float64MultiArray, contract: Contract) -> Chunk:
    """Raises MessageError naming what does not fit."""
    dims = [(d.label, int(d.size), int(d.stride)) for d in message.layout.dim]
    try:
        return from_wire(dims, np.asarray(message.data, dtype=np.float64), contract)
    except ValueError as error:  # ContractError, or a JSON number with thousands of digits
        raise MessageError(str(error)) from error


@dataclass(frozen=True)
class ActionLabel:
    """How fresh an action is: in the label of the second dimension of every action message."""

    state: str
    source: str
    index: int | None
    age_ns: int | None
    request: int | None
    tick: int
    mono_ns: int


def action_message(command: Command, names: str, tick: int, now_ns: int) -> Float64MultiArray:
    """A command as a multi-array: dim 0 has the channels' names, dim 1 the ActionLabel."""
    request = command.provenance.request if command.provenance else None
    label = ActionLabel(command.state.value, command.source, command.index, command.age_ns, request, tick, now_ns)
    count = len(command.values)
    dims = [
        MultiArrayDimension(label=names, size=count, stride=count),
        MultiArrayDimension(label=json.dumps(vars(label), separators=(",", ":")), size=1, stride=1),
    ]
    return Float64MultiArray(layout=MultiArrayLayout(dim=dims, data_offset=0), data=command.values)


def read_action(message: Float64MultiArray) -> tuple[NDArray[np.float64], ActionLabel]:
    """The values of an action and its label. Raises MessageError."""
    if len(message.layout.dim) != 2:
        raise MessageError(f"action: {len(message.layout.dim)} dimensions, expected 2")
    fields = read_json(message.layout.dim[1].label, "action: dim[1]")
    try:
        return np.array(message.data, dtype=np.float64), ActionLabel(**fields)
    except TypeError as error:
        raise MessageError(f"action: dim[1]: {error}") from error


def image_reader(*, compressed: bool) -> Callable[[memoryview | bytes], Any]:
    """What reads an image from its payload, without a copy of the pixels. Raises PayloadError."""
    return read_compressed if compressed else read_image


def raw_pixels(
    message: ReceivedImage, expected: tuple[int, int] | None = None, max_pixels: int = MAX_PIXELS
) -> NDArray[np.uint8]:
    """RGB, uint8 [height, width, 3]. expected: the only (height, width) that is accepted. max_pixels: no larger image
    is. Raises ObservationError."""
    return decode_raw(
        height=message.height,
        width=message.width,
        encoding=message.encoding,
        step=message.step,
        data=message.data,
        is_bigendian=message.is_bigendian,
        max_pixels=max_pixels,
        expected=expected,
    )


def json_message(fields: dict[str, Any]) -> String:
    return String(data=json.dumps(fields, separators=(",", ":")))
