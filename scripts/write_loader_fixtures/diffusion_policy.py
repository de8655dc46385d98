"""Writes tests/policies/loaders/data/diffusion_policy: a checkpoint saved as diffusion_policy's training saves it.

That is: torch.save of {"cfg", "state_dicts", "pickles"} with dill, the configuration an omegaconf node that was
resolved. Needs omegaconf (2.2.3 wrote the one that is kept) and dill; diffusion_policy itself is on no package index.
Sizes, names and random weights are those of tests/policies/loaders/diffusion_policy_file.py; `model`, which is not
read beside `ema_model`, is left out but for its statistics, to keep the file small.

    PYTHONPATH=. python scripts/write_loader_fixtures/diffusion_policy.py
"""

from __future__ import annotations

import json
from pathlib import Path

import dill
import torch
from omegaconf import OmegaConf

from tests.policies.loaders import diffusion_policy_file as made

HERE = Path(__file__).resolve().parents[2] / "tests/policies/loaders/data/diffusion_policy"


def main() -> None:
    policy = made.config()
    policy["shape_meta"] = "${task.shape_meta}"
    task = {"name": "pusht_image", "shape_meta": made.config()["shape_meta"]}
    cfg = OmegaConf.create({"task": task, "policy": policy, "horizon": made.HORIZON, "training": {"use_ema": True}})
    cfg.policy.horizon = "${horizon}"
    OmegaConf.resolve(cfg)
    payload = made.payload({}, made.state_dict(made.config()))
    states = payload["state_dicts"]
    states["model"] = {name: tensor for name, tensor in states["model"].items() if "normalizer" in name}
    payload["cfg"] = cfg
    payload["pickles"] = {name: dill.dumps(value) for name, value in (("global_step", 3), ("epoch", 1))}
    HERE.mkdir(parents=True, exist_ok=True)
    torch.save(payload, HERE / "hybrid.ckpt", pickle_module=dill)
    (HERE / "robot.json").write_text(json.dumps(made.robot(), indent=1) + "\n")


if __name__ == "__main__":
    main()
