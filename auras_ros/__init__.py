"""One GPU, one robot, one runtime: robot policies over ROS 2.

Importing the package costs nothing: what `load` and `load_vlm` need is imported when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from auras_ros.direct.policy import DirectPolicy
    from auras_ros.direct.vlm import DirectVlm

__all__ = ["__version__", "load", "load_vlm"]
__version__ = "0.1.0"


def load(
    checkpoint: str | Path, *, plan: str = "", device: str = "cpu", seed: int = 0, dtype: str = "auto"
) -> DirectPolicy:
    """A policy that is called from Python: `auras_ros.load("pusht").act(images=..., state=...)` (docs/python.md).

    checkpoint: the name of one that ships, or a folder: ours, LeRobot's or OpenVLA's with its robot.json; as text it
    has a separator in it (`./my_policy`). plan: one of the checkpoint's generation plans; its first if empty. device:
    cpu, cuda or auto. seed: of the noise. dtype: of the weights, as the agent's parameter. Raises ValueError or
    OSError, naming the file and the thing; RuntimeError for a device that is not here.
    """
    from auras_ros.direct import policy

    return policy.load(checkpoint, plan=plan, device=device, seed=seed, dtype=dtype)


def load_vlm(
    checkpoint: str | Path,
    *,
    device: str = "cpu",
    dtype: str = "auto",
    adapters: Mapping[str, str | Path] | None = None,
) -> DirectVlm:
    """A vision-language model that is called from Python: `auras_ros.load_vlm("pusht-vlm").ask(image, "Where is it?")`.

    checkpoint: the name of one that ships, or the folder of a published model. device: cpu, cuda or auto. dtype: of the
    weights, as the node's parameter. adapters: LoRA adapters that `ask` may name, and their folders. Raises ValueError
    or OSError, naming the file and the thing; RuntimeError for a device that is not here.
    """
    from auras_ros.direct import vlm

    return vlm.load(checkpoint, device=device, dtype=dtype, adapters=adapters)
