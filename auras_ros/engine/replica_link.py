"""What a replica and its parent send each other over their pipe."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import Answer, AnswerToken, Delta, FinishReason, VlmRequest
from auras_ros.engine.stats import EngineSnapshot


@dataclass(frozen=True)
class ReplicaOptions:
    """folder, dtype: as `open_vlm` takes them. cores: of the replica's process."""

    folder: Path
    dtype: str
    engine: EngineOptions
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Ready:
    """The engine runs. dtype: of its weights. length: tokens of prompt and answer together."""

    dtype: str
    length: int


@dataclass(frozen=True)
class AddAdapter:
    """Asks a replica for `Engine.add_adapter`."""

    name: str
    folder: Path


@dataclass(frozen=True)
class RemoveAdapter:
    """Asks a replica for `Engine.remove_adapter`."""

    name: str


@dataclass(frozen=True)
class Taken:
    """A request was taken, or an adapter added or removed; or it was refused with this reason."""

    number: int
    refused: Exception | None


class Piece(NamedTuple):
    """A piece of the answer to a request: what a `Delta` has, in the form that is sent fastest."""

    number: int
    text: str
    tokens: tuple[AnswerToken, ...]
    finish: FinishReason | None
    detail: str
    answer: Answer | None

    @classmethod
    def of(cls, number: int, delta: Delta) -> Piece:
        return cls(number, delta.text, delta.tokens, delta.finish, delta.detail, delta.answer)

    @property
    def delta(self) -> Delta:
        return Delta(*self[1:])


AdapterChange = AddAdapter | RemoveAdapter
Order = VlmRequest | AdapterChange | None
"""To the replica; None: the request of that number is cancelled."""
Event = Ready | Taken | Piece | EngineSnapshot | Exception
"""From the replica; an exception: it could not start."""


class _Pickler(pickle.Pickler):
    """Tensors as NumPy's arrays, whose numbers pickle leaves where they are: torch's own way copies them twice."""

    def reducer_override(self, item: Any) -> Any:
        return (torch.from_numpy, (item.numpy(),)) if isinstance(item, Tensor) else NotImplemented


def send(link: Connection, number: int, order: Order) -> None:
    """To the replica. Raises OSError if it is gone."""
    buffers, text = list[memoryview](), io.BytesIO()
    _Pickler(text, 5, buffer_callback=lambda each: buffers.append(each.raw())).dump((number, order))
    link.send((text.getvalue(), [len(each) for each in buffers]))
    for each in buffers:
        link.send_bytes(each)


def receive(link: Connection) -> tuple[int, Order]:
    """What `send` sent. Raises EOFError or OSError if the parent is gone."""
    text, sizes = link.recv()
    buffers = [bytearray(size) for size in sizes]
    for each in buffers:
        link.recv_bytes_into(each)
    number, order = pickle.loads(text, buffers=buffers)  # noqa: S301  (of the process that started this one)
    return number, order
