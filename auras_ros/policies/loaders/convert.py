"""Writes a foreign checkpoint in our own format, with a golden sample made by the translated networks themselves.

The sample shows from then on that weights, preprocessing and statistics have not changed since the conversion. It
cannot show that they equal the reference's: the loaders' tests do. If a conversion fails, nothing is left at the
target.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import digest
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.tokenizer import TOKENIZER
from auras_ros.observation import CameraSpec, ObservationSpec, StateSpec, decode_compressed
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import Translator, translate
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.writing import write_manifest

SEED = 20_261_121
COARSE = (5, 6)  # random values of an image; the rest is interpolated between them
SUFFIXES = (".png", ".npy")
STATE = "state.json"


@dataclass(frozen=True)
class Converted:
    """What was written, and whether its golden observation is the robot's (`images`) or made up. notes: see
    `Translated`."""

    checkpoint: Checkpoint
    observed: bool
    margin: float | None  # see `writing.write`
    notes: tuple[str, ...] = ()


def convert(
    source: Path, robot: Robot, out: Path, images: Path | None = None, read: Translator | None = None
) -> Converted:
    """Translate, write, load again. read: the translator, that of the source's kind by default. images: a folder with
    `<camera>.png` or `<camera>.npy` (uint8 RGB [h, w, 3] or [history, h, w, 3]) for each camera, and state.json (joint
    -> position) if the policy takes the state.

    Raises CheckpointError, naming what is wrong; FileExistsError if something exists at `out`.
    """
    if not out.name or out.name == ".." or out.resolve() == Path.cwd():
        raise FileExistsError(f"{out}: must be a folder that does not exist yet")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out}: exists already; give another folder")
    made = translate(source, robot, read)
    checkpoint = made.checkpoint(digest(source, made.files), source)
    frames, state = _given(checkpoint.spec, images) if images else _made_up(checkpoint.spec)
    tokenizer = source / TOKENIZER
    out.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # private, and on the same disk
    part = room / out.name  # with the usual permissions
    try:
        margin = write_manifest(
            part,
            made.manifest,
            checkpoint.networks.state_dict(),
            frames,
            state,
            tokenizer if tokenizer.is_file() else None,
        )
        if out.exists():
            out.rmdir()
        part.rename(out)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return Converted(checkpoint, images is not None, margin, made.notes)


Observed = tuple[dict[str, NDArray[np.uint8]], dict[str, NDArray[np.float64]]]


def _made_up(spec: ObservationSpec) -> Observed:
    """Smooth random images, and positions well within the statistics."""
    random = np.random.default_rng(SEED)
    frames = {camera.name: _smooth(random, spec.history, camera) for camera in spec.cameras}
    return frames, _positions(random, spec.state, spec.history)


def _smooth(random: np.random.Generator, history: int, camera: CameraSpec) -> NDArray[np.uint8]:
    coarse = torch.from_numpy(random.random((history, 3, *COARSE)))
    fine = torch.nn.functional.interpolate(coarse, (camera.height, camera.width), mode="bilinear")
    return (255 * fine).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def _positions(random: np.random.Generator, state: StateSpec | None, history: int) -> dict[str, NDArray[np.float64]]:
    if state is None:
        return {}
    shares, made = random.uniform(-0.5, 0.5, (len(state.names), history)), {}
    for i, name in enumerate(state.names):
        center, scale = 0.0, 1.0
        if state.kind == "mean_std":
            center, scale = state.first[i], state.second[i]
        elif state.kind == "min_max":
            center, scale = (state.first[i] + state.second[i]) / 2, (state.second[i] - state.first[i]) / 2
        made[name] = center + scale * shares[i]
    return made


def _given(spec: ObservationSpec, folder: Path) -> Observed:
    frames = {camera.name: _frames(folder, camera, spec.history) for camera in spec.cameras}
    if spec.state is None:
        return frames, {}
    told, file = read_json(folder / STATE), folder / STATE
    for name in spec.state.names:
        value = told.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise CheckpointError(f"{file}: '{name}': {json.dumps(value)} is not a position")
    return frames, {name: np.full(spec.history, float(told[name])) for name in spec.state.names}


def _frames(folder: Path, camera: CameraSpec, history: int) -> NDArray[np.uint8]:
    """[history, h, w, 3]; a single image is used for all instants."""
    found = [folder / f"{camera.name}{suffix}" for suffix in SUFFIXES]
    path = next((each for each in found if each.is_file()), None)
    if path is None:
        raise CheckpointError(
            f"{folder}: no image of camera '{camera.name}': looked for {found[0]} and {found[1].name}"
        )
    with refusing(f"{path}: not an image", ValueError, EOFError):
        read = np.load(path, allow_pickle=False) if path.suffix == ".npy" else decode_compressed(path.read_bytes())
    frames = np.broadcast_to(read, (history, *read.shape)) if read.ndim == 3 else read
    wanted = (history, camera.height, camera.width, 3)
    if frames.dtype != np.uint8 or frames.shape != wanted:
        raise CheckpointError(
            f"{path}: {frames.dtype} {list(frames.shape)}, expected uint8 {list(wanted)} or one of them"
        )
    return np.ascontiguousarray(frames)
