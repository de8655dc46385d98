"""The adapters of an engine's requests: who waits for one, who uses one, which one is merged."""

from __future__ import annotations

import logging
from collections.abc import Callable

from auras_ros.device.cores import thread_on
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.scheduler import EngineState
from auras_ros.engine.tables import BlockTables
from auras_ros.lora.pool import AdapterPool
from auras_ros.lora.registry import AdapterError
from auras_ros.lora.runtime import LoraRuntime
from auras_ros.lora.slots import Resident

LOGGER = logging.getLogger(__name__)
OVERTAKING_NS = 1_000_000_000  # how long others, whose adapter is in memory, go before a request


class EngineAdapters:
    """Used in the engine's thread; the registry by anybody."""

    def __init__(self, runtime: LoraRuntime, tables: BlockTables, state: EngineState, wake: Callable[[], None]) -> None:
        self.registry, self._runtime, self._state = runtime.registry, runtime, state
        if why := runtime.weights.refusal:
            LOGGER.warning("no adapter is ever merged: %s", why)
        self._loader = thread_on("adapters", None, 1)
        self.pool = AdapterPool(
            runtime.slots, lambda known: self.registry.read(known.folder), tables.reserve, tables.unreserve,
            self._loader, wake,
        )  # fmt: skip
        self._failed: list[tuple[ActiveRequest, str]] = []
        state.lora.summed = (None,) * runtime.weights.copies

    @property
    def loading(self) -> int:
        """Adapters that are on their way."""
        return self.pool.loading

    @property
    def switch_ns(self) -> int:
        """What the last computation of an adapter's weights took."""
        return self._runtime.weights.took_ns

    def picker(self, now_ns: int, overtaking: bool = True) -> Callable[[ActiveRequest], bool]:
        """Says whether a request may start, asked of those that wait, in their order: those whose adapter is in memory,
        which is pinned then, or who need none. Once an earlier one has waited for OVERTAKING_NS, no later one may;
        without overtaking, at once."""
        held = False

        def may_start(active: ActiveRequest) -> bool:
            nonlocal held
            if held:
                return False
            if active.adapter is None:
                return True
            try:
                active.resident = self.pool.acquire(active.adapter)
                if active.resident is None and not self.loading and self._unmerge():
                    self.pool.acquire(active.adapter)  # starts to load: it is not there yet
            except AdapterError as error:
                self._failed.append((active, str(error)))
                return False
            waited_ns = now_ns - active.timings.arrived_ns
            held = active.resident is None and (not overtaking or waited_ns > OVERTAKING_NS)
            return active.resident is not None

        return may_start

    def failed(self) -> list[tuple[ActiveRequest, str]]:
        """Requests whose adapter could not be read, since the last call."""
        found, self._failed = self._failed, []
        return found

    def poll(self) -> bool:
        return self.pool.poll()

    def shrink(self) -> bool:
        """Frees the blocks of an adapter that nobody uses; False if there is none."""
        return self.pool.shrink() or (self._unmerge() and self.pool.shrink())

    def release(self, active: ActiveRequest) -> None:
        if active.resident is not None:
            self.pool.release(active.resident)
            active.resident = None

    def merge(self, merged: Resident | None) -> Resident | None:
        """For a forward of the decoder, whose thread changes the weights before it computes. What is merged stays in
        memory, as who does not have it takes it away. Returns what will be merged: nothing, if that adapter has had to
        leave, or the weights take none. Raises RuntimeError if another forward reads the weights."""
        decoding = bool(self._state.running.keys() - {"vision"})
        if decoding and merged is self._state.lora.merged:  # also if the other forward's change has just failed
            return merged
        if merged is not None and (self._runtime.weights.refusal or not self.pool.users(merged)):
            merged = None
        if merged is self._state.lora.merged:
            return merged
        if decoding:
            raise RuntimeError("the scheduler merges an adapter while the decoder computes")
        if merged is not None:
            self.pool.pin(merged)
        if self._state.lora.merged is not None:
            self.pool.release(self._state.lora.merged)
        self._state.lora.merged = merged
        if merged is not None:
            self._state.lora.used(merged)
        elif not self._runtime.weights.exact:
            self._state.lora.summed, self._state.lora.missed_ns = (None,), {}
        return merged

    def _unmerge(self) -> bool:
        """Lets go of the merged adapter, if nothing else uses it and the decoder does not compute: the next forward
        begins with the base model's weights. Returns whether its slot is free now."""
        merged = self._state.lora.merged
        if merged is None or self.pool.users(merged) > 1 or self._state.running.keys() - {"vision"}:
            return False
        self.merge(None)
        return True

    def close(self) -> None:
        self._loader.shutdown(cancel_futures=True)
