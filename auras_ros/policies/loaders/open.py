"""Opens a checkpoint folder of any known kind: ours, LeRobot's, or Hugging Face's OpenVLA.

The folder's own files name its kind; nothing is tried out. A foreign folder needs a robot.json beside its files, and
has no golden sample. This module knows no format itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.files import digest
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.manifest import MANIFEST, ROBOT
from auras_ros.checkpoints.peft import CONFIG as ADAPTER
from auras_ros.policies import checkpoint
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated

CONFIG = "config.json"
CKPT, ROBOMIMIC = ".ckpt", ".pth"  # pickles: of diffusion_policy, and of robomimic

Translator = Callable[[Path, Robot], Translated]


def load(folder: Path, dtype: str = "float32", device: str = "cpu") -> Checkpoint:
    """A checkpoint of any known kind. dtype, device: see `dtype.runtime_dtype`. Raises CheckpointError, naming the file
    and what is wrong."""
    if (folder / MANIFEST).is_file():
        return checkpoint.load(folder, dtype, device)
    if pickled := _pickled(folder):
        more = f" --robot {ROBOT}" if pickled.suffix == CKPT else ""
        raise CheckpointError(
            f"{pickled}: is a pickle and is not loaded; convert it first, which runs nothing of what is in it: "
            f"auras convert {pickled}{more} --out {pickled.with_suffix('')}"
        )
    read = translator(folder)
    translated = translate(folder, Robot.load(folder / ROBOT), read)
    opened = translated.checkpoint(digest(folder, translated.files), folder, dtype, device)
    for plan in opened.plans:
        opened.policy(plan)
    return opened


def translate(source: Path, robot: Robot, read: Translator | None = None) -> Translated:
    """The folder (or file) in our terms, for this robot, with the robot's own plans. Raises CheckpointError."""
    made = (read or translator(source))(source, robot)
    plans = {**made.manifest["plans"], **{name: dict(settings) for name, settings in robot.plans.items()}}
    return replace(made, manifest={**made.manifest, "plans": plans, "name": robot.name or made.manifest["name"]})


def translator(source: Path) -> Translator:
    """The loader for this source. Raises CheckpointError if there is none."""
    if source.is_file() and source.suffix == CKPT:
        from auras_ros.policies.loaders.ckpt import translate as read_ckpt

        return read_ckpt
    if source.is_file() and source.suffix == ROBOMIMIC:
        from auras_ros.policies.loaders.robomimic import translate as read_robomimic

        return read_robomimic
    config = read_json(source / CONFIG) if (source / CONFIG).is_file() else {}
    if config.get("model_type") == "openvla":
        from auras_ros.policies.loaders.openvla import translate as read_openvla

        return read_openvla
    if "type" in config:
        from auras_ros.policies.loaders.lerobot import translate as read_lerobot

        return read_lerobot
    if (source / ADAPTER).is_file():
        raise CheckpointError(
            f"{source}: a LoRA adapter ({ADAPTER}) without the policy's {CONFIG}, which LeRobot writes beside it"
        )
    raise CheckpointError(
        f"{source}: not a checkpoint: looked for {MANIFEST} (ours), and for {CONFIG} with a 'type' (LeRobot) or with "
        f"model_type 'openvla' (Hugging Face)"
    )


def _pickled(source: Path) -> Path | None:
    """The source if it is such a file, or the one in it if it has no config.json."""
    if source.is_file():
        return source if source.suffix in (CKPT, ROBOMIMIC) else None
    found = sorted(path for kind in (CKPT, ROBOMIMIC) for path in source.glob(f"*{kind}"))
    return None if (source / CONFIG).is_file() else next(iter(found), None)
