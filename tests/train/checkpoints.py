"""A Push-T checkpoint of the shipped shape, of whatever networks."""

from __future__ import annotations

from pathlib import Path

from auras_ros.models.keypoint_encoder import KeypointEncoder
from auras_ros.models.unet1d import ConditionalUnet1d
from auras_ros.train import export
from auras_ros.train.diffusion import HORIZON
from auras_ros.train.pusht_task import PUSHT


def write_checkpoint(folder: Path, name: str, encoder: KeypointEncoder, network: ConditionalUnet1d) -> None:
    described = export.describe(PUSHT, name, "diffusion", HORIZON, export.PLANS, encoder.sizes, network.sizes, {})
    export.write(folder, PUSHT, described, {"encoder": encoder, "network": network})
