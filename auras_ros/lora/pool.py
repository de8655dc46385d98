"""Which adapters are in memory: slots with an owner, read in a thread of their own while others compute (VaLoRA 5).

A slot that a request uses is pinned. When an adapter is wanted that is not there, it gets a slot whose blocks nobody
owns, or that of the adapter which was unused longest.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from auras_ros.checkpoints.peft import PeftAdapter
from auras_ros.lora.registry import AdapterError, KnownAdapter
from auras_ros.lora.slots import AdapterSlots, Resident

FAILED_S = 1.0  # how long those who waited for an adapter that could not be read are told so; then it is read again


@dataclass
class PoolStats:
    """loads: adapters that were read into a slot; load_s: time of that in its thread. hits: requests that had none
    read, as theirs was there or on its way. evictions: of loads, those that took the slot of another."""

    loads: int = 0
    load_s: float = 0.0
    hits: int = 0
    evictions: int = 0


@dataclass(eq=False)
class Loaded:
    """An adapter in a slot. users: requests that it is pinned by. used: whether the one that it was read for has it."""

    known: KnownAdapter
    resident: Resident
    users: int = 0
    used: bool = False


class AdapterPool:
    """Used by one thread, the engine's."""

    def __init__(
        self,
        slots: AdapterSlots,
        read: Callable[[KnownAdapter], PeftAdapter],
        reserve: Callable[[range], bool],
        give_back: Callable[[range], None],
        executor: Executor,
        came: Callable[[], None],
    ) -> None:
        """read: an adapter from its folder; raises ValueError. reserve: takes exactly these blocks, or returns False.
        executor: reads. came: called in its thread when one is there."""
        self._slots, self._read, self._reserve, self._give_back = slots, read, reserve, give_back
        self._executor, self._came = executor, came
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()  # by digest; the longest unused first
        self._loading: dict[str, tuple[int, KnownAdapter, Future[Resident]]] = {}
        self._failed: WeakKeyDictionary[KnownAdapter, tuple[str, float]] = WeakKeyDictionary()  # and when, s
        self._free = list(range(slots.count))  # without blocks
        self.stats = PoolStats()

    @property
    def loading(self) -> int:
        """Adapters that are being read, or have been since the last `poll`."""
        return len(self._loading)

    def acquire(self, known: KnownAdapter) -> Resident | None:
        """Pins it; None while it is on its way or no slot is free. Raises AdapterError if it could not be read."""
        loaded = self._loaded.get(known.digest)
        if loaded is not None:
            loaded.users += 1
            self._loaded.move_to_end(known.digest)
            self.stats.hits += loaded.used
            loaded.used = True
            return loaded.resident
        failed = self._failed.pop(known, None)
        if failed is not None and time.monotonic() < failed[1] + FAILED_S:  # or whoever waited for it is gone
            raise AdapterError(f"adapter: '{known.name}': {failed[0]}")
        if known.digest not in self._loading and (slot := self._room()) is not None:
            future = self._executor.submit(self._load, known, slot)
            self._loading[known.digest] = slot, known, future
            future.add_done_callback(lambda _: self._came())
        return None

    def pin(self, resident: Resident) -> None:
        """One user more, of one that is there."""
        self._loaded[resident.digest].users += 1

    def users(self, resident: Resident) -> int:
        """How often it is pinned; 0 if it is not there."""
        loaded = self._loaded.get(resident.digest)
        return 0 if loaded is None else loaded.users

    def release(self, resident: Resident) -> None:
        """One user less."""
        self._loaded[resident.digest].users -= 1

    def poll(self) -> bool:
        """Takes over what has been read. Returns whether something was."""
        done = [digest for digest, (_, _, future) in self._loading.items() if future.done()]
        for digest in done:
            slot, known, future = self._loading.pop(digest)
            if (error := future.exception()) is not None:
                self._failed[known] = str(error), time.monotonic()
                self._empty(slot)
                continue
            self._slots.publish(future.result())
            self._loaded[digest] = Loaded(known, future.result())
            self.stats.loads += 1
        return bool(done)

    @property
    def unused_blocks(self) -> int:
        """Of adapters that nobody uses: `shrink` gives them back."""
        return self._slots.blocks * sum(each.users == 0 for each in self._loaded.values())

    def shrink(self) -> bool:
        """Gives the blocks of the longest unused adapter back; False if all are in use."""
        for digest, loaded in self._loaded.items():
            if loaded.users == 0:
                self._drop(digest)
                self._empty(loaded.resident.slot)
                return True
        return False

    def _room(self) -> int | None:
        """A slot that owns its blocks, and nothing in it."""
        for slot in self._free:
            if self._reserve(self._slots.range(slot)):
                self._free.remove(slot)
                return slot
        for digest, loaded in self._loaded.items():
            if loaded.users == 0:
                self._drop(digest)
                self.stats.evictions += 1
                return loaded.resident.slot
        return None

    def _drop(self, digest: str) -> None:
        self._slots.withdraw(self._loaded.pop(digest).resident.slot)

    def _empty(self, slot: int) -> None:
        self._give_back(self._slots.range(slot))
        self._free.append(slot)

    def _load(self, known: KnownAdapter, slot: int) -> Resident:
        began_s = time.perf_counter()
        adapter = self._read(known)
        if adapter.digest != known.digest:
            raise AdapterError(f"{known.folder} has changed since it was added")
        resident = self._slots.write(slot, adapter)
        self.stats.load_s += time.perf_counter() - began_s
        return resident
