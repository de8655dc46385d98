"""A chunk to and from the three labelled dimensions of a multi-array message, without the message type.

The node copies the fields between this form and std_msgs/Float64MultiArray. What arrives is not trusted:
sizes are checked against the data before anything is built. This module never checks action values.

Layout: dim 0 (label "horizon", size H, stride H*C), dim 1 (label: comma-joined channel names, size C,
stride C), dim 2 (label: provenance as compact JSON, size 1, stride 1); data row-major [H, C]. The key
"reference" of the JSON object holds the state at the origin, where the contract has delta_origin channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from json import dumps
from typing import Any

import numpy as np
import numpy.typing as npt

from .chunk import Chunk, Provenance, loads
from .contract import Contract, ContractError, FloatArray

MAX_HORIZON = 4096
MAX_JSON_CHARS = 65536


WireDim = tuple[str, int, int]  # label, size, stride


def to_wire(chunk: Chunk, contract: Contract) -> tuple[list[WireDim], FloatArray]:
    """The chunk in message form: the three dimensions, and the data, flat [H*C]. Raises ContractError if it does not
    fit the contract."""
    chunk.check(contract)
    horizon, channels = chunk.actions.shape
    header: dict[str, Any] = chunk.provenance.to_dict()
    if chunk.reference is not None:
        header["reference"] = [value if np.isfinite(value) else None for value in chunk.reference.tolist()]
    dims = [
        ("horizon", horizon, horizon * channels),
        (",".join(contract.names), channels, channels),
        (dumps(header, separators=(",", ":")), 1, 1),
    ]
    return dims, chunk.actions.reshape(-1)


def from_wire(dims: Sequence[WireDim], data: npt.ArrayLike, contract: Contract) -> Chunk:
    """Build a chunk from the dimensions and the flat data.

    Raises ContractError, naming the dimension or field, on anything that is not this layout for this
    contract: other channels, another order, sizes that do not match the data, too long JSON.
    """
    if len(dims) != 3:
        raise ContractError(f"chunk message: {len(dims)} dimensions, expected 3")
    (label, horizon, _), (names, channels, _), (header, _, _) = dims
    if label != "horizon" or not 1 <= horizon <= MAX_HORIZON:
        text = f"{label[:40]!r} of size {horizon}, expected horizon 1..{MAX_HORIZON}"
        raise ContractError(f"chunk message: dim[0]: {text}")
    if names != ",".join(contract.names) or channels != len(contract.channels):
        raise ContractError(f"chunk message: dim[1]: {names[:200]!r}, expected {','.join(contract.names)!r}")
    try:
        values = np.asarray(data, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContractError(f"chunk message: data: not numbers: {error}") from error
    if values.size != horizon * channels:
        raise ContractError(f"chunk message: data: {values.size} values for {horizon} x {channels}")
    if len(header) > MAX_JSON_CHARS:
        raise ContractError(f"chunk message: dim[2]: {len(header)} characters, at most {MAX_JSON_CHARS}")
    provenance, reference = _read_header(loads(header, "chunk message: dim[2]"))
    chunk = Chunk(values.reshape(horizon, channels), provenance, reference)
    chunk.check(contract)
    return chunk


def _read_header(raw: Any) -> tuple[Provenance, Any]:
    """The provenance, and what may be a chunk's reference."""
    if not isinstance(raw, Mapping):
        raise ContractError("chunk message: dim[2]: expected a JSON object")
    header = dict(raw)
    reference = header.pop("reference", None)
    if reference is not None:
        if not isinstance(reference, list):
            raise ContractError("chunk message: reference: expected a list of numbers")
        reference = [np.nan if value is None else value for value in reference]
    return Provenance.from_dict(header), reference
