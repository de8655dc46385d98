"""Conversion between the project's own data and ROS messages: chunks, actions, and the JSON texts between processes.

Both directions are here, so that one node reads what the other writes. Messages are not trusted: a malformed one raises
MessageError, which names the field.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.action import Chunk, Command, Contract, from_wire, to_wire
from auras_ros.observation import decode_raw
from auras_ros.ros.msg import Float64MultiArray, Image, MultiArrayDimension, MultiArrayLayout, String

MAX_TEXT = 65536


class MessageError(ValueError):
    """A malformed message; the text names the field."""


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


def raw_pixels(message: Image, expected: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """RGB, uint8 [height, width, 3]. expected: the only (height, width) that is accepted. Raises ObservationError."""
    return decode_raw(
        height=message.height,
        width=message.width,
        encoding=message.encoding,
        step=message.step,
        data=message.data,
        is_bigendian=message.is_bigendian,
        expected=expected,
    )


def text_refusal(what: str, text: str, limit_bytes: int) -> str:
    """Why a text for a model is refused, beginning with `what`; empty if it is accepted. The length is checked first,
    so a huge one costs nothing."""
    if len(text) > limit_bytes or len(text.encode("utf-8", "surrogatepass")) > limit_bytes:
        return f"{what}: longer than {limit_bytes} bytes"
    if "\ufffd" in text:  # rclpy replaces bytes that are not UTF-8 with it
        return f"{what}: not UTF-8"
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):  # control, surrogate
            return f"{what}: not text: it contains the character U+{ord(character):04X}"
    return ""


def json_message(fields: dict[str, Any]) -> String:
    return String(data=json.dumps(fields, separators=(",", ":")))


def read_json(text: str, what: str) -> dict[str, Any]:
    """The JSON object in a text. Raises MessageError naming `what`."""
    if len(text) > MAX_TEXT:
        raise MessageError(f"{what}: {len(text)} characters, at most {MAX_TEXT}")
    try:
        fields = json.loads(text)
        if "\\u" in text:  # JSON can contain half a surrogate pair, which cannot be encoded later
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # a plain ValueError: a number with thousands of digits
        raise MessageError(f"{what}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MessageError(f"{what}: expected a JSON object, got {type(fields).__name__}")
    return fields
