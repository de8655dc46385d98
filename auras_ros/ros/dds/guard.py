"""A guard condition: any thread triggers it, the executor runs its callback."""

from __future__ import annotations

import ctypes as ct
import threading
from collections.abc import Callable

from . import library as dds
from .participant import Participant


class GuardCondition:
    """Triggers that come before the callback ran count as one."""

    def __init__(self, participant: Participant, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.entity = dds.check(dds.create_guardcondition(participant.ref), "guard condition")
        self.closed = False
        self._lock = threading.Lock()
        participant.register(self)

    def trigger(self) -> None:
        with self._lock:
            if not self.closed:
                dds.check(dds.set_guardcondition(self.entity, True), "guard condition")

    def execute(self) -> None:
        taken = ct.c_bool()
        with self._lock:
            if self.closed:
                return
            dds.check(dds.take_guardcondition(self.entity, ct.byref(taken)), "guard condition")
        if taken.value:
            self.callback()

    def close(self) -> None:
        with self._lock:
            if not self.closed:
                self.closed = True
                dds.delete(self.entity)
