"""Searched tables as a file: of each device, shape -> choice. A table holds for one processor and number of threads, or
for one GPU and version of Triton; a file may have those of several."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import Rule, WayTable, rule
from auras_ros.kernels.lora_tilings import TilingTable
from auras_ros.text_file import MEBIBYTE, read_text_file

LOGGER = logging.getLogger(__name__)
VERSION = 1
MOST_BYTES = 16 * MEBIBYTE
CPUINFO = Path("/proc/cpuinfo")


def cpu_name(threads: int | None = None) -> str:
    """The device that a table of ways belongs to. threads: of torch (None: as they are set)."""
    count = torch.get_num_threads() if threads is None else threads
    model = platform.processor() or platform.machine()
    if CPUINFO.exists():
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    return f"{model}, {count} thread{'s' * (count > 1)}"


def gpu_name(name: str, version: str) -> str:
    """The device that a table of tilings belongs to. version: Triton's."""
    return f"{name}, triton {version}"


def write_table(path: Path, device: str, entries: Mapping[LoraShape, str], **more: Any) -> None:
    """Adds a device's table to those that the file has, or replaces it. more: about the search. Raises ValueError for a
    file that is something else, OSError."""
    tables = _devices(path) if path.exists() else {}
    shapes = {" ".join(map(str, shape)): name for shape, name in sorted(entries.items())}
    tables[device] = {**more, "key": " ".join(LoraShape._fields), "entries": shapes}
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps({"version": VERSION, "devices": tables}, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_table(path: Path, device: str) -> dict[LoraShape, str]:
    """A device's entries; none if the file has no table of it. Raises ValueError, OSError."""
    tables = _devices(path)
    try:
        found = {_shape(text): str(name) for text, name in tables.get(device, {"entries": {}})["entries"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {device}: not a table: {error}") from error
    return found


def read_own_table(path: Path, device: str) -> dict[LoraShape, str]:
    """A device's entries. Raises ValueError, with the file's name if it has none of it; OSError."""
    entries = read_table(path, device)
    if not entries:
        raise ValueError(f"{path} has no table of {device}")
    return entries


def read_ways(path: Path, threads: int | None = None, otherwise: Rule = rule) -> WayTable:
    """The table of this machine; if the file has none of it, which is logged, an empty one. otherwise: the rule where
    the table has nothing like a shape. Raises ValueError, OSError."""
    try:
        entries = read_table(path, device := cpu_name(threads))
        if not entries:
            LOGGER.warning("lora_ways: %s has no table of %s: a rule chooses how to multiply", path, device)
        return WayTable(entries, otherwise)
    except ValueError as error:
        raise ValueError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from error


def read_tilings(path: Path, device: str) -> TilingTable:
    """The table of this GPU. Raises ValueError with the file's name, also if the file has none of it; OSError."""
    entries = read_own_table(path, device)
    try:
        return TilingTable(entries)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _devices(path: Path) -> dict[str, Any]:
    try:
        whole = json.loads(read_text_file(path, MOST_BYTES))
        if whole["version"] != VERSION:
            raise ValueError(f"version {whole['version']}, expected {VERSION}")
        return dict(whole["devices"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a file of tables: {error}") from error


def _shape(text: str) -> LoraShape:
    phase, *sizes = text.split()
    shape = LoraShape(phase, *map(int, sizes))
    if min(shape[1:]) < 1:
        raise ValueError(f"a size below 1: {text}")
    return shape
