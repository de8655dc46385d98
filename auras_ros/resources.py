"""Finds the files that ship beside the code: configurations, launch files, checkpoints.

They lie in the source tree of an editable install, and in `share/auras_ros` of any other: under
the prefix this very module was installed to, under the interpreter's own, or under one that ROS 2
was told of. This module only finds files; it never reads one.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Literal, get_args

from auras_ros.spelling import hint

PACKAGE = "auras_ros"
Kind = Literal["config", "launch", "checkpoints"]
CHECKPOINT_FILES = ("policy.json", "config.json")  # of a policy; of a vision-language model, or of another library


def share_dir() -> Path:
    """The folder that holds package.xml, `config/`, `launch/` and `checkpoints/`.

    Raises FileNotFoundError, which lists the folders that were looked at.
    """
    for folder in _candidates():
        if _is_share(folder):
            return folder
    raise FileNotFoundError(f"{PACKAGE}: no shared files, looked in {_listed(_candidates())}")


def find(kind: Kind, name: str) -> Path:
    """The file or folder `name` of one kind, e.g. `find("config", "pusht.yaml")`.

    `name` is relative and stays inside its folder (ValueError otherwise). Every place is asked in
    turn, so that an overlay may hold some of the files only. Raises FileNotFoundError, which lists
    the paths that were looked at and the names there are.
    """
    if kind not in get_args(Kind):
        raise ValueError(f"unknown kind {kind!r}, expected one of {', '.join(get_args(Kind))}")
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{kind} name {name!r} must be a relative path inside {kind}/")
    folders = [folder / kind for folder in _candidates() if _is_share(folder)]
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    known = sorted({path.name for folder in folders if folder.is_dir() for path in folder.iterdir()})
    looked = _listed([folder / name for folder in folders or [f / kind for f in _candidates()]])
    ships = ", ".join(known) or "none"
    raise FileNotFoundError(f"{kind} '{name}' not found{hint(name, known)}; looked for {looked}; available: {ships}")


def config(name_or_path: str) -> Path:
    """A configuration: a file, or the name of one that ships, with or without .yaml. Raises FileNotFoundError, also for
    a mistyped path whose last part is such a name: another robot's configuration must not start."""
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    if is_path(name_or_path):
        raise FileNotFoundError(f"config {path}: no such file")
    return find("config", path.name if path.suffix else f"{path.name}.yaml")


def checkpoint(name_or_folder: str) -> Path:
    """The folder of a policy or of a vision-language model: the name of one that ships, or a path.

    A file is a path too: the loader says what is to be done with it. A name without a separator may also be a folder
    here, but not one that ships at the same time: the wrong one must not drive a robot. Raises FileNotFoundError.
    """
    if not name_or_folder or "\0" in name_or_folder:
        raise FileNotFoundError(f"checkpoint {name_or_folder!r}: expected the name of one that ships, or a folder")
    if not is_path(name_or_folder):
        return _shipped_or_here(name_or_folder)
    try:
        folder = Path(name_or_folder).expanduser()
    except RuntimeError as error:  # ~somebody who is not here
        raise FileNotFoundError(f"checkpoint folder not found: {name_or_folder}: {error}") from error
    if not folder.exists():
        raise FileNotFoundError(f"checkpoint folder not found: {folder}, in {Path.cwd()}")
    return folder


def checkpoint_names() -> list[str]:
    """Names of the checkpoints that ship, of policies and of vision-language models."""
    folders = [folder / "checkpoints" for folder in _candidates() if _is_share(folder)]
    found = {path.parent.name for folder in folders for name in CHECKPOINT_FILES for path in folder.glob(f"*/{name}")}
    return sorted(found)


def _shipped_or_here(name: str) -> Path:
    here = Path(name)
    if name not in checkpoint_names():
        if here.exists():
            return here
        names = checkpoint_names()
        meant, ships = hint(name, names), ", ".join(names) or "none"
        raise FileNotFoundError(f"checkpoint '{name}': no such folder in {Path.cwd()}, and none ships{meant} ({ships})")
    shipped = find("checkpoints", name)
    if any((here / each).is_file() for each in CHECKPOINT_FILES) and here.resolve() != shipped.resolve():
        raise FileNotFoundError(
            f"checkpoint '{name}': there is a folder of that name here, and one ships: write ./{name} or {shipped}"
        )
    return shipped


def adapter(folder: str) -> Path:
    """An adapter's folder: as it is given, if it is there or absolute; else the one of that name that ships, such as
    pusht-monitor/way. What is nowhere is given back, and refused by whoever reads it."""
    path = Path(folder)
    return path if path.exists() or not ships(folder) else find("checkpoints", folder)


def ships(name: str) -> bool:
    """Whether a checkpoint or an adapter of this name ships."""
    try:
        return find("checkpoints", name).exists()
    except (FileNotFoundError, ValueError):
        return False


def is_path(name_or_folder: str) -> bool:
    """Whether a checkpoint is given as a path, and not as the name of one that ships."""
    return os.sep in name_or_folder or name_or_folder in (".", "..")


def beside(name_or_folder: str, folder: Path) -> Path | None:
    """A relative path that is not there from the working directory, but from `folder`; None for anything else."""
    if not is_path(name_or_folder) or "\0" in name_or_folder or name_or_folder.startswith(("~", os.sep)):
        return None
    there = folder / name_or_folder
    return there.resolve() if not Path(name_or_folder).exists() and there.exists() else None


def _candidates() -> list[Path]:
    """Every place in order: the copy that belongs to this code first, then the environment's."""
    module = Path(__file__).resolve()
    source_tree = module.parents[1]
    prefixes = [*module.parents, Path(sysconfig.get_path("data"))]
    prefixes += [Path(entry) for entry in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys([source_tree, *(prefix / "share" / PACKAGE for prefix in prefixes)]))


def _is_share(folder: Path) -> bool:
    """Whether `folder` is ours: another package's share folder has another package.xml."""
    manifest = folder / "package.xml"
    return manifest.is_file() and f"<name>{PACKAGE}</name>" in manifest.read_text(encoding="utf-8")


def _listed(paths: list[Path]) -> str:
    return ", ".join(str(path) for path in paths)
