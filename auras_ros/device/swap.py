"""Layers that are copied in while others compute: K physical layers hold N logical ones in turn (Nova III-E).

The weights of all layers wait in a store (`swap_store`). When a physical layer has computed logical layer l, the copy
lane reads logical layer (l + K) mod N into it (Eq. 7), beside what is computed meanwhile; so each forward leaves the
next one's first K layers behind. A physical layer is computed after the mark of its last copy, and a copy starts after
what its launching thread has computed before: nothing is read before it is there, nor overwritten while it is used. The
results are the resident layers', bit for bit.

That hides the copies if the link moves all layers within a forward: B >= M / T (Eq. 8). Both are measured when layers
are swapped; where the link is slower, as many layers stay resident as it needs, spread over the depth.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from auras_ros.device.lane import Device, DeviceError, FolderError, Lane, Mark
from auras_ros.device.swap_store import Reader, SwapStore, make_store, weights_of
from auras_ros.device.uncaptured import cannot_capture

if TYPE_CHECKING:
    from torch import Tensor, nn

LOGGER = logging.getLogger(__name__)
STEADY = 0.9  # of the measured bandwidth is counted on
TIMED = 3  # forwards and reads that are timed
FORWARDS, CLOSE = 10, 1e-9  # that a plan is tried with; what is rounding
MB = 1_000_000


@dataclass(frozen=True)
class SwapPlan:
    """layers: N; physical: K. resident: logical layers that are never swapped. layer_bytes: of one layer. bandwidth: of
    the link, bytes/s, and forward_s: of the whole encoder, both measured."""

    layers: int
    physical: int
    resident: tuple[int, ...]
    layer_bytes: int
    bandwidth: float
    forward_s: float

    @property
    def swapped(self) -> tuple[int, ...]:
        """The logical layers that are, in order."""
        return tuple(layer for layer in range(self.layers) if layer not in self.resident)

    @property
    def demand(self) -> float:
        """M / T of Eq. 8 if all layers are swapped, bytes/s."""
        return self.layers * self.layer_bytes / self.forward_s

    @property
    def hidden(self) -> bool:
        """Whether Eq. 8 holds with all layers swapped."""
        return STEADY * self.bandwidth >= self.demand

    def __str__(self) -> str:
        link = f"{self.bandwidth / MB:,.0f} MB/s of {self.demand / MB:,.0f} needed for all"
        if not self.swapped:
            return f"all {self.layers} layers stay resident: the link has {link}"
        rest = f" and {len(self.resident)} resident" if self.resident else ""
        return f"{self.layers} layers of {self.layer_bytes / MB:,.1f} MB in {self.physical} physical{rest}: {link}"


def make_plan(layers: int, physical: int, layer_bytes: int, bandwidth: float, forward_s: float) -> SwapPlan:
    """The least number of resident layers, evenly spread, with which no layer waits for its copy. All, if they and K
    leave none to swap.

    A share f >= 1 - B T / M is needed. It is enough only if a resident layer falls into every K layers: a copy has the
    time of the K - 1 layers after it and no more.
    """
    copy_s, compute_s = layer_bytes / (STEADY * bandwidth), forward_s / layers
    least = math.ceil(layers * (1 - compute_s / copy_s) - CLOSE)
    for count in range(max(least, 0), layers - physical):
        resident = tuple(int((place + 0.5) * layers / count) for place in range(count))
        if not _waits(layers, physical, resident, copy_s / compute_s):
            break
    else:
        resident = tuple(range(layers))
    return SwapPlan(layers, physical, resident, layer_bytes, bandwidth, forward_s)


def _waits(layers: int, physical: int, resident: Sequence[int], copy: float) -> bool:
    """Whether a layer waits for its copy in one of many forwards. Time in forwards of one layer."""
    now, copied = 0.0, [0.0] * physical
    for layer in (*range(layers),) * FORWARDS:
        if layer not in resident:
            if copied[-physical] > now + CLOSE:
                return True
            copied.append(max(now + 1, copied[-1]) + copy)
        now += 1
    return False


@dataclass
class _Physical:
    """wanted: the logical layer that its next copy reads. loaded: its mark; failure: what it raised."""

    module: nn.Module
    read: Reader
    wanted: int = 0
    loaded: Mark | None = None
    failure: Exception | None = None


class LayerSwap:
    """Runs the swapped layers of a plan, and keeps the copies coming. Any order of calls is right; consecutive ones are
    fast. `modules`: the physical layers."""

    def __init__(
        self, plan: SwapPlan, modules: Sequence[nn.Module], store: SwapStore, device: Device, lane: Lane
    ) -> None:
        self.plan, self._order, self._reuses, self._lane = plan, plan.swapped, store.reuses, lane
        readers = [store.reader(number, weights_of(each)) for number, each in enumerate(modules)]
        self._physical = [_Physical(*each) for each in zip(modules, readers, strict=True)]
        self._filling = False  # capturing a stage runs it
        self._stages = [
            device.capture(f"swap {number}", partial(self._read, number), lane) for number in range(len(modules))
        ]
        self._filling = True
        self._turn: int | None = self._begin(0)  # of the next layer, counted through forwards; None: begin anew
        self._lock = threading.Lock()

    def run(self, place: int, *args: Any, **kwargs: Any) -> Any:
        """The forward of the swapped layer number `place`. Raises DeviceError, naming the layer, if it could not be
        read, and what its forward raises; the next call starts afresh."""
        cannot_capture("layers are swapped")
        with self._lock:
            turn = self._turn
            if turn is None or turn % len(self._order) != place:
                turn = self._begin(place)
            self._turn = None
            physical = self._physical[turn % len(self._physical)]
            self._come_after(physical)
            out = physical.module(*args, **kwargs)
            self._load(turn + len(self._physical))
            self._turn = turn + 1
            return out

    def _begin(self, place: int) -> int:
        """Copy this layer and those after it in. Returns its turn."""
        for turn in range(place, place + len(self._physical)):
            self._load(turn)
        return place

    def _load(self, turn: int) -> None:
        """The swapped layer of this turn into the physical layer that it falls to."""
        number = turn % len(self._physical)
        physical = self._physical[number]
        if self._reuses and physical.loaded is not None:
            physical.loaded.wait()
        physical.wanted = self._order[turn % len(self._order)]
        physical.loaded = self._lane.launch(self._stages[number])

    def _read(self, number: int) -> None:
        """The body of a physical layer's stage. On the copy lane."""
        cannot_capture("layers are copied in")
        physical = self._physical[number]
        physical.failure = None
        try:
            if self._filling:
                physical.read(physical.wanted)
        except Exception as error:  # noqa: BLE001  (raised where the layer is needed)
            physical.failure = error

    def _come_after(self, physical: _Physical) -> None:
        assert physical.loaded is not None
        physical.loaded.follow()
        if physical.failure is not None:
            raise DeviceError(
                f"swap_layers: layer {physical.wanted} could not be read: {physical.failure}"
            ) from physical.failure


def swap_layers(
    layers: nn.ModuleList,
    physical: int,
    folder: Path | None,
    device: Device,
    lane: Lane,
    forward: Callable[[], object],
) -> SwapPlan:
    """Swap `layers`, all of one form and each called once in a forward, with K = `physical`. folder: for their file,
    where one is needed. lane: of the copies. forward: runs the encoder once, as it will run. Raises DeviceError, naming
    the option, with every layer in its place."""
    weights = _checked(layers, physical, folder)
    forward_s = min(_seconds(forward) for _ in range(1 + TIMED))  # the first one is never the shortest
    store = make_store(folder, weights, physical)
    size = sum(map(len, weights[0]))
    plan = make_plan(len(layers), physical, size, _bandwidth(store, weights, device, lane), forward_s)
    LOGGER.info("swap_layers: %s; from %s", plan, store.kind)
    if not plan.swapped:
        store.close()
        return plan
    swap = LayerSwap(plan, [layers[number] for number in plan.swapped[:physical]], store, device, lane)
    for place, number in enumerate(plan.swapped):
        layers[number] = _stand_in(partial(swap.run, place))
    return plan


def _checked(layers: nn.ModuleList, physical: int, folder: Path | None) -> list[list[Tensor]]:
    """Each layer's weights."""
    if not 2 <= physical < len(layers):  # one alone hides nothing
        raise DeviceError(f"swap_layers: {physical} physical layers for {len(layers)}: from 2 to {len(layers) - 1}")
    if folder is not None and not folder.is_dir():
        raise FolderError(f"swap_folder: {folder} is not a folder")
    weights = [weights_of(each) for each in layers]
    for number, each in enumerate(weights):
        if list(map(len, each)) != list(map(len, weights[0])):
            raise DeviceError(f"swap_layers: layer {number} has another form than layer 0")
    if len({each.data_ptr() for own in weights for each in own}) < sum(map(len, weights)):
        raise DeviceError("swap_layers: layers share weights")
    return weights


def _bandwidth(store: SwapStore, weights: Sequence[Sequence[Tensor]], device: Device, lane: Lane) -> float:
    """Of the link, bytes/s: some layers are read into themselves. Raises DeviceError."""
    number, took_s = 0, list[float]()
    readers = [store.reader(0, each) for each in weights[: 1 + TIMED]]

    def read() -> None:
        cannot_capture("layers are copied in")
        readers[number](number)

    stage = device.capture("swap", read, lane)
    for number in range(len(readers)):
        try:
            took_s.append(_seconds(lambda: lane.launch(stage).wait()))
        except OSError as error:
            raise FolderError(f"swap_folder: layer {number} could not be read: {error}") from error
    return sum(map(len, weights[0])) / median(took_s[1:])


def _seconds(run: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    run()
    return time.perf_counter() - began_s


def _stand_in(forward: Callable[..., Any]) -> nn.Module:
    """A module without weights, in a swapped layer's place."""
    from torch import nn

    made = nn.Module()
    made.forward = forward
    return made
