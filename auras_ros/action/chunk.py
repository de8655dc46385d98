"""A chunk of actions and its provenance.

Provenance stays with the actions from the camera stamp to the published command, so that each command names
the observation that it answers. This module holds data and checks its form; it never decides whether a chunk
may be executed (`stream` does) and uses no message type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .contract import ChannelKind, Contract, ContractError, FloatArray, check_keys

_INT64 = 2**63


@dataclass(frozen=True)
class Provenance:
    """Where a chunk comes from. Raises ContractError, naming the field.

    `origin_stamp_ns` is the oldest camera stamp in the last stage's context, in the camera's clock, and
    `origin_mono_ns` the same instant on the monotonic clock of `host` (its boot id): it defines action
    index 0 (rule 8 of docs/pipeline.md). `session`: from one configure of the agent to the next. `epoch` rises with
    each change of prompt, adapter or plan and each reset (rule 9 of docs/pipeline.md). `context_age_ns` is the age of
    the context at every generation stage. `stamps`: how the time of the inputs was known, by their stamps or their
    receipt.
    """

    origin_stamp_ns: int
    origin_mono_ns: int
    host: str = ""
    session: str = ""
    frame: int = 0
    request: int = 0
    epoch: int = 0
    context_age_ns: tuple[int, ...] = ()
    prompt: str = ""
    adapter: str = ""
    plan: str = ""
    checkpoint: str = ""
    stamps: str = ""

    def __post_init__(self) -> None:
        for name in _INTS:
            _check_int(name, getattr(self, name))
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise ContractError(f"provenance: {name}: expected text, got {_shown(getattr(self, name))}")
        ages = self.context_age_ns
        if not isinstance(ages, list | tuple):
            raise ContractError(f"provenance: context_age_ns: expected a list of integers, got {_shown(ages)}")
        for age in ages:
            _check_int("context_age_ns", age)
        object.__setattr__(self, "context_age_ns", tuple(ages))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Provenance:
        """Build from a JSON object; the two origins are required, unknown keys are refused."""
        check_keys("provenance", raw, {field.name for field in fields(cls)}, ("origin_stamp_ns", "origin_mono_ns"))
        return cls(**raw)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {**vars(self), "context_age_ns": list(self.context_age_ns)}


_INTS = ("origin_stamp_ns", "origin_mono_ns", "frame", "request", "epoch")
_TEXTS = ("host", "session", "prompt", "adapter", "plan", "checkpoint", "stamps")


@dataclass(frozen=True, eq=False)
class Chunk:
    """Actions [horizon, channels] in physical units and contract order, float64, a read-only copy.

    `reference` [channels] is the state at the origin; delta_origin channels need it, others ignore it.
    Values are not checked here, not even for NaN: only when the chunk is offered is it known which of them may
    still be executed. Raises ContractError on a wrong shape or a type that is not numeric.
    """

    actions: FloatArray
    provenance: Provenance
    reference: FloatArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", _frozen("actions", self.actions, 2))
        if self.reference is not None:
            object.__setattr__(self, "reference", _frozen("reference", self.reference, 1))
            if self.reference.shape[0] != self.actions.shape[1]:
                raise ContractError(
                    f"chunk: reference: {self.reference.shape[0]} values for {self.actions.shape[1]} channels"
                )

    @property
    def horizon(self) -> int:
        """Number of policy steps."""
        return int(self.actions.shape[0])

    def check(self, contract: Contract) -> None:
        """Raise ContractError unless the form fits the contract: channel count, reference where needed."""
        if self.actions.shape[1] != len(contract.channels):
            raise ContractError(
                f"chunk: actions: {self.actions.shape[1]} channels, the contract has "
                f"{len(contract.channels)} ({', '.join(contract.names)})"
            )
        needed = contract.is_kind(ChannelKind.DELTA_ORIGIN)
        if not needed.any():
            return
        known = np.zeros(len(needed), bool) if self.reference is None else np.isfinite(self.reference)
        missing = needed & ~known
        if missing.any():
            name = contract.names[int(np.argmax(missing))]
            raise ContractError(f"chunk: reference: channel {name!r} is delta_origin and has no finite value")


def _frozen(name: str, values: npt.ArrayLike, ndim: int) -> FloatArray:
    try:
        array = np.array(values, dtype=np.float64, order="C", copy=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ContractError(f"chunk: {name}: not an array of numbers: {error}") from error
    if array.ndim != ndim or array.size == 0:
        raise ContractError(f"chunk: {name}: expected {ndim} non-empty dimensions, got shape {array.shape}")
    array.flags.writeable = False
    return array


def _check_int(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise ContractError(f"provenance: {name}: expected a 64-bit integer, got {_shown(value)}")


def _shown(value: object) -> str:
    """A value for an error message: a plain value as it is written, any other by its type, as it may be too deep."""
    plain = isinstance(value, (str, int, float)) or value is None
    return repr(value)[:80] if plain else f"a value of type {type(value).__name__}"


def loads(text: str, what: str) -> Any:
    """JSON text to values. Raises ContractError: `what` is not JSON, too deep, or has a number too long."""
    try:
        values = json.loads(text)
        if "\\u" in text:  # JSON can contain half a surrogate pair, which cannot be encoded later
            json.dumps(values, ensure_ascii=False).encode()
        return values
    except (ValueError, RecursionError) as error:
        raise ContractError(f"{what}: not JSON: {error}") from error
