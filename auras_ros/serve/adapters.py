"""The adapters that a request's `model` can name: those given at start, and those added while serving.

Adding and removing takes the option `lora_folder`: only what lies in that folder is read, and no link leads out of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from auras_ros import resources
from auras_ros.engine.request import EngineClosedError
from auras_ros.lora.registry import AdapterError
from auras_ros.serve.errors import ApiError, refusal

SHOWN = 8  # names in an error


class AdapterEngine(Protocol):
    """What of an engine is used here."""

    def add_adapter(self, name: str, folder: Path) -> None: ...

    def remove_adapter(self, name: str) -> None: ...

    def adapter_names(self) -> list[str]: ...


class ServedAdapters:
    """`add`, `load` and `unload` read files, so they are called in no event loop."""

    def __init__(self, engine: AdapterEngine, model: str, folder: str) -> None:
        """model: what requests call the model itself. folder: where adapters may be added from; empty: nowhere."""
        self._engine, self._model = engine, model
        self._folder = Path(folder).resolve() if folder else None
        self._created: dict[str, int] = {}

    def add(self, modules: Iterable[tuple[str, str]]) -> None:
        """Those of the option `lora_modules`: name and folder. Raises ValueError, which names the adapter."""
        for name, folder in modules:
            try:
                self._add(name, resources.adapter(folder))
            except (ValueError, OSError) as error:
                raise ValueError(f"lora_modules: {name}: {error}") from error

    def names(self) -> list[str]:
        return self._engine.adapter_names()

    def created(self, name: str) -> int:
        """When it was added, seconds."""
        return self._created.get(name, 0)

    def named(self, model: str | None) -> str:
        """The adapter that a request's model is; empty: the model itself. Raises ApiError."""
        if model in (None, self._model):
            return ""
        names = self.names()
        if model not in names:
            there = ", ".join(f"'{each}'" for each in [self._model, *names][:SHOWN])
            more = f" and {len(names) + 1 - SHOWN} more" if len(names) >= SHOWN else ""
            raise ApiError(
                404, f"model: '{model}' is not served here; there are: {there}{more}",
                field="model", code="model_not_found",
            )  # fmt: skip
        return model or ""

    def load(self, name: str, path: str) -> str:
        """Adds one while others are served. Returns what is said of it. Raises ApiError."""
        folder = self._allowed(path)
        try:
            self._add(name, folder)
        except AdapterError as error:
            raise ApiError(400, f"lora_name: {error}", field="lora_name") from error
        except EngineClosedError as error:
            raise refusal(error) from error
        except (ValueError, OSError) as error:
            raise ApiError(400, f"lora_path: {error}", field="lora_path") from error
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, name: str) -> str:
        """Requests that have it go on. Returns what is said of it. Raises ApiError."""
        self._changeable()
        try:
            self._engine.remove_adapter(name)
        except AdapterError as error:
            raise ApiError(404, f"lora_name: {error}", field="lora_name", code="model_not_found") from error
        except EngineClosedError as error:
            raise refusal(error) from error
        self._created.pop(name, None)
        return f"Success: LoRA adapter '{name}' removed successfully."

    def _add(self, name: str, folder: Path) -> None:
        if name == self._model:
            raise AdapterError(f"adapter: '{name}' is the name of the model itself")
        self._engine.add_adapter(name, folder)
        self._created[name] = int(time.time())

    def _changeable(self) -> Path:
        """The folder that adapters may come from. Raises ApiError."""
        if self._folder is None:
            raise ApiError(
                403, "adapters are added and removed only where the option lora_folder names a folder for them",
                code="lora_folder",
            )  # fmt: skip
        return self._folder

    def _allowed(self, path: str) -> Path:
        """The folder, if it and all its files lie in `lora_folder`, wherever links lead. Raises ApiError."""
        allowed = self._changeable()
        try:
            folder = (allowed / path).resolve()
            inside = ".." not in Path(path).parts and allowed in folder.parents
            if inside and folder.is_dir():
                inside = all(allowed in each.resolve().parents for each in folder.iterdir())
        except (OSError, ValueError, RuntimeError) as error:  # no name of a file, links in a circle
            raise ApiError(400, f"lora_path: {error}", field="lora_path") from error
        if not inside:
            raise ApiError(
                403, f"lora_path: '{path}' is not, with all its files, in the folder of the option lora_folder",
                field="lora_path", code="lora_folder",
            )  # fmt: skip
        return folder
