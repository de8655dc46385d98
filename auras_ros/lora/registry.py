"""The adapters that can be asked for, by name. Each was read and checked whole when it was added; what is in memory is
the pool's (`pool`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from auras_ros.checkpoints.peft import AdapterTargets, PeftAdapter, adapter_digest, read_peft

MOST_NAME = 128


class AdapterError(ValueError):
    """An adapter that is not there or cannot be used; the text names it."""


@dataclass(frozen=True, eq=False)
class KnownAdapter:
    """Added once more under its name it is another one. digest: of its files. sees: whether it changes what images
    become. head: whether it has a task head."""

    name: str
    folder: Path
    digest: str
    sees: bool
    head: bool


class AdapterRegistry:
    """Safe in several threads."""

    def __init__(self, targets: AdapterTargets, check: Callable[[PeftAdapter], None]) -> None:
        """check: raises ValueError for an adapter that does not fit into memory as it is laid out."""
        self._targets, self._check = targets, check
        self._known: dict[str, KnownAdapter] = {}
        self._lock = threading.Lock()

    def add(self, name: str, folder: Path) -> KnownAdapter:
        """Reads the folder. Raises AdapterError for a name that cannot be used or is in use, CheckpointError for a
        folder that is refused."""
        self._refuse_known(name)
        known = self._checked(name, folder)
        with self._lock:
            self._refuse_known(name)
            self._known[name] = known
        return known

    def set(self, folders: Mapping[str, Path]) -> None:
        """These and no others, all at once: a name that was there and stays can be asked for all the time. Those whose
        folder or its files are others are read. Raises AdapterError with the adapter's name; then nothing changed."""
        found = dict[str, KnownAdapter]()
        for name, folder in folders.items():
            try:
                known = self._known.get(name)
                if known is None or (known.folder, known.digest) != (folder, adapter_digest(folder)):
                    known = self._checked(name, folder)
                found[name] = known
            except (ValueError, OSError) as error:
                raise AdapterError(f"{name}: {error}") from error
        with self._lock:
            self._known = found

    def remove(self, name: str) -> KnownAdapter:
        """Nobody can ask for it any more. Raises AdapterError if it is not there."""
        with self._lock:
            known = self._known.pop(name, None)
        if known is None:
            raise AdapterError(self._missing(name))
        return known

    def find(self, name: str) -> KnownAdapter:
        """Raises AdapterError if it is not there."""
        known = self._known.get(name)
        if known is None:
            raise AdapterError(self._missing(name))
        return known

    def names(self) -> list[str]:
        return [each.name for each in self.all()]

    def all(self) -> list[KnownAdapter]:
        """Sorted by name."""
        with self._lock:
            return [self._known[name] for name in sorted(self._known)]

    def read(self, folder: Path) -> PeftAdapter:
        """Raises CheckpointError, or ValueError if it does not fit."""
        adapter = read_peft(folder, self._targets)
        self._check(adapter)
        return adapter

    def _checked(self, name: str, folder: Path) -> KnownAdapter:
        if not 0 < len(name) <= MOST_NAME or not name.isprintable():
            raise AdapterError(f"adapter: {name[:MOST_NAME]!r} is not a name of 1 to {MOST_NAME} printable characters")
        adapter = self.read(folder)
        sees = any(not each.startswith("language.") for each in adapter.factors)
        return KnownAdapter(name, folder, adapter.digest, sees, adapter.head is not None)

    def _refuse_known(self, name: str) -> None:
        if name in self._known:
            raise AdapterError(f"adapter: '{name}' is there already")

    def _missing(self, name: str) -> str:
        there = self.names()
        more = f", and {len(there) - 8} more" if len(there) > 8 else ""
        return f"adapter: there is no {name[:MOST_NAME]!r}; there are: {', '.join(there[:8]) or 'none'}{more}"
