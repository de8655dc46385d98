"""The adapters of the node's engine, as the parameter `loras` names them: read at configure, changed while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from auras_ros.engine.engine import Engine
from auras_ros.parameters import ParameterError


class NodeAdapters:
    """Of one engine. Used in one thread; each change reads files there."""

    def __init__(self, engine: Engine, folders: Mapping[str, Path]) -> None:
        """folders: of the adapters that the engine has already."""
        self._engine, self._folders = engine, dict(folders)

    def change(self, wanted: Mapping[str, Path]) -> None:
        """Adds and removes what differs: all of it, or on an error nothing. An adapter from another folder replaces the
        one of its name. Raises ParameterError, which names the adapter; another ValueError or OSError if one that was
        removed could not be put back."""
        there = {name: folder for name, folder in self._folders.items() if name in self._engine.adapter_names()}
        replaced = [name for name in wanted if name in there and wanted[name] != there[name]]
        with ExitStack() as undo:
            for name in wanted.keys() - there.keys():
                self._add(name, wanted[name], undo)
            for name in replaced:
                self._remove(name, there[name], undo)
                self._add(name, wanted[name], undo)
            for name in there.keys() - wanted.keys():
                self._remove(name, there[name], undo)
            undo.pop_all()
        self._folders = dict(wanted)

    def describe(self) -> dict[str, str]:
        """Of each adapter: its folder, the beginning of its digest, and whether it has a task head."""
        if self._engine.adapters is None:
            return {}
        registry = self._engine.adapters.registry
        known = [registry.find(name) for name in registry.names()]
        return {each.name: f"{each.folder} {each.digest[:12]}{', task head' if each.head else ''}" for each in known}

    def _add(self, name: str, folder: Path, undo: ExitStack) -> None:
        try:
            self._engine.add_adapter(name, folder)
        except (ValueError, OSError) as error:
            raise ParameterError(f"vlm: loras: {name}: {error}") from error
        undo.callback(self._engine.remove_adapter, name)

    def _remove(self, name: str, folder: Path, undo: ExitStack) -> None:
        self._engine.remove_adapter(name)
        undo.callback(self._engine.add_adapter, name, folder)
