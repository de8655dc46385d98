"""LeRobot's `act` as our family of the same name (`policies.act`).

The variational encoder is only for training: its tensors are known and ignored. Temporal ensembling is done by the
actuator (`seam: ensemble`), so a folder that was made for it loads with its whole chunk.
"""

from __future__ import annotations

import re
from typing import Any

from auras_ros.policies.loaders import lerobot_manifest
from auras_ros.policies.loaders.lerobot import BURIED, LeRobotFolder
from auras_ros.policies.loaders.lerobot_diffusion import BACKBONES
from auras_ros.policies.loaders.lerobot_vla import executed
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated, renamed, wanted
from auras_ros.values import shown

KEYS = {
    "chunk_size", "n_action_steps", "vision_backbone", "replace_final_stride_with_dilation", "pre_norm", "dim_model",
    "n_heads", "dim_feedforward", "feedforward_activation", "n_encoder_layers", "n_decoder_layers", "use_vae",
    "latent_dim", "temporal_ensemble_coeff",
}  # fmt: skip
IGNORED = {"n_vae_encoder_layers", "dropout", "kl_weight"}  # only for training
LATER = frozenset[str]()
VARIATIONAL = "model.vae_encoder"


def translate(folder: LeRobotFolder, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    folder.check_steps()
    if not folder.cameras:
        raise folder.refused("input_features: a policy without images is not supported")
    manifest = _manifest(folder, robot)
    variational = folder.get("use_vae", (True, False))

    def is_ignored(source: str) -> bool:
        counted = source.endswith("num_batches_tracked") or source.startswith(BURIED)
        return counted or (variational and source.startswith(VARIATIONAL))

    names = wanted(manifest, folder.file)
    return Translated(manifest, *renamed(names, folder.tensors, folder.weights, _source_of, is_ignored))


def _manifest(folder: LeRobotFolder, robot: Robot) -> dict[str, Any]:
    folder.get("n_obs_steps", (1,))
    cameras = tuple(lerobot_manifest.camera(folder, robot, feature) for feature in folder.cameras)
    return lerobot_manifest.manifest(
        folder,
        robot,
        "act",
        encoder=_backbone(folder),
        network={
            "width": folder.count("dim_model"),
            "heads": folder.count("n_heads"),
            "hidden": folder.count("dim_feedforward"),
            "encoder_layers": folder.count("n_encoder_layers"),
            "decoder_layers": folder.count("n_decoder_layers"),
            "latent": folder.count("latent_dim"),
            "activation": folder.get("feedforward_activation", ("relu", "gelu")),
            "pre_norm": folder.get("pre_norm", (True, False)),
        },
        horizon=folder.count("chunk_size"),
        observation=lerobot_manifest.observation(folder, robot, 1, cameras),
        plans={"once": {}},
        executed=[0, _executed(folder)],
    )


def _backbone(folder: LeRobotFolder) -> dict[str, Any]:
    folder.get("replace_final_stride_with_dilation", (False, 0))
    name = folder.get("vision_backbone", tuple(BACKBONES))
    return {"type": "resnet18", "norm": "batch", **BACKBONES[name]}


def _executed(folder: LeRobotFolder) -> int:
    """How many of a chunk's actions are executed: all of them if chunks are averaged."""
    _, count = executed(folder)
    coefficient = folder.get("temporal_ensemble_coeff")
    if coefficient is not None and type(coefficient) not in (int, float):
        raise folder.refused(f"temporal_ensemble_coeff: {shown(coefficient)} is neither a number nor null")
    return count if coefficient is None else folder.count("chunk_size")


def _source_of(name: str) -> str:
    """LeRobot's name of one of our tensors."""
    part, _, rest = name.partition(".")
    return f"model.{part}.{rest}" if re.match(r"layers\.|norm\.", rest) else f"model.{rest}"
