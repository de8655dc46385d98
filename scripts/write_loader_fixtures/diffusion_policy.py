"""Writes tests/policies/loaders/data/diffusion_policy: checkpoints saved as diffusion_policy's training saves them.

That is: torch.save of {"cfg", "state_dicts", "pickles"} with dill, the configuration one that hydra composed and that
was then resolved, as its train.py does. omegaconf keeps in it what the resolver `now` answered. The name of a file says
which omegaconf wrote it: hydra_2.2.3.ckpt (with hydra 1.3.2; the 1.2.0 that diffusion_policy pins brings the same
omegaconf, but needs Python 3.10) and hydra_2.4.0.ckpt (with hydra 1.3.8). hybrid.ckpt is older: omegaconf 2.2.3 without
hydra. diffusion_policy itself is on no package index: tests/policies/loaders/test_ckpt_genuine.py compares with files
of its own. Sizes, names and random weights are those of tests/policies/loaders/diffusion_policy_file.py; `model`, which
is not read beside `ema_model`, is left out but for its statistics, to keep the files small.

    PYTHONPATH=. python scripts/write_loader_fixtures/diffusion_policy.py
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dill
import hydra
import omegaconf
import torch
from omegaconf import OmegaConf

from tests.policies.loaders import diffusion_policy_file as made

HERE = Path(__file__).resolve().parents[2] / "tests/policies/loaders/data/diffusion_policy"
DATES = {"name": "${now:%Y.%m.%d-%H.%M.%S}_${name}", "run_dir": "data/outputs/${now:%Y.%m.%d}/${now:%H.%M.%S}_${name}"}


def main() -> None:
    cfg = configuration()
    payload = made.payload({}, made.state_dict(made.config()))
    states = payload["state_dicts"]
    states["model"] = {name: tensor for name, tensor in states["model"].items() if "normalizer" in name}
    payload["cfg"] = cfg
    payload["pickles"] = {name: dill.dumps(value) for name, value in (("global_step", 3), ("epoch", 1))}
    HERE.mkdir(parents=True, exist_ok=True)
    torch.save(payload, HERE / f"hydra_{omegaconf.__version__}.ckpt", pickle_module=dill)
    (HERE / "robot.json").write_text(json.dumps(made.robot(), indent=1) + "\n")


def configuration() -> Any:
    """A training's configuration, composed by hydra from a file and resolved."""
    policy = made.config()
    policy["shape_meta"] = "${task.shape_meta}"
    policy["horizon"] = "${horizon}"
    task = {"name": "pusht_image", "shape_meta": made.config()["shape_meta"]}
    values = {"name": "train", "task": task, "policy": policy, "horizon": made.HORIZON, "training": {"use_ema": True}}
    with TemporaryDirectory() as folder:
        OmegaConf.save(OmegaConf.create({**values, "logging": DATES}), Path(folder) / "train.yaml")
        with hydra.initialize_config_dir(folder, version_base=None):
            cfg = hydra.compose("train")
    OmegaConf.resolve(cfg)
    return cfg


if __name__ == "__main__":
    main()
