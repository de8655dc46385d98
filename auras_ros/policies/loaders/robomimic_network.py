"""The networks and samplers of robomimic's configuration, in terms of our manifest.

`diffusion` is its Diffusion Policy, `cloning` its behaviour cloning of one instant. Variants that are not built are
refused by their key.
"""

from __future__ import annotations

from typing import Any

from auras_ros.checkpoints.limits import HISTORY, HORIZON, STEPS
from auras_ros.checkpoints.torch_file import LazyTensors
from auras_ros.policies.loaders.ckpt_config import CkptConfig
from auras_ros.policies.loaders.diffusion import FINAL_GROUPS, published_plan

UNET = "policy.noise_pred_net."
VARIANTS = ("gaussian", "vae", "transformer", "rnn")
OTHERWISE = "False; with `auras convert --inference robomimic` robomimic itself plays it"
MOST_SCALES = 16


def diffusion(algo: CkptConfig, tensors: LazyTensors) -> dict[str, Any]:
    """The manifest's keys, and the history. A chunk is what robomimic executes of the horizon."""
    horizons = algo.object("horizon")
    algo.object("unet").get("enabled", allowed=(True,))
    history = horizons.count("observation_horizon", most=HISTORY)
    horizon = horizons.count("prediction_horizon", most=HORIZON)
    executed = [history - 1, horizons.count("action_horizon")]
    if sum(executed) > horizon:
        raise horizons.refused("action_horizon", executed[1], f"at most {horizon - executed[0]} in the horizon")
    sampler = "ddpm" if algo.object("ddpm").get("enabled", allowed=(True, False)) else "ddim"
    scheduler = algo.object(sampler)
    return {
        "type": "diffusion",
        "history": history,
        "horizon": horizon,
        "executed": executed,
        "network": _unet(algo, tensors),
        "plans": _plans(sampler, scheduler),
        "prediction": scheduler.get("prediction_type", allowed=("epsilon", "sample")),
        "training_steps": scheduler.count("num_train_timesteps", most=STEPS),
    }


def _plans(sampler: str, scheduler: CkptConfig) -> dict[str, dict[str, Any]]:
    scheduler.get("enabled", allowed=(True,))
    scheduler.get("beta_schedule", allowed=("squaredcos_cap_v2",))
    trained, steps = scheduler.count("num_train_timesteps", most=STEPS), scheduler.count("num_inference_timesteps")
    if sampler == "ddim":
        scheduler.get("set_alpha_to_one", allowed=(True,))
        scheduler.get("steps_offset", allowed=(0,))
    if steps > trained:
        raise scheduler.refused("num_inference_timesteps", steps, f"at most the {trained} of the training")
    return published_plan(sampler, steps, 1.0 if scheduler.get("clip_sample", allowed=(True, False)) else None)


def _unet(algo: CkptConfig, tensors: LazyTensors) -> dict[str, Any]:
    """Sizes come from the weights: robomimic builds the network with its own defaults, whatever the file says."""
    first = "{}down_modules.{}.0.blocks.0.block.0.weight".format
    scales = sum(first(UNET, scale) in tensors for scale in range(MOST_SCALES))
    return {
        "type": "conditional_unet1d",
        "down_dims": [tensors.side(first(UNET, scale), 0) for scale in range(max(scales, 1))],
        "kernel": tensors.side(first(UNET, 0), 2),
        "groups": algo.object("unet").get("n_groups", 8, (8,)),
        "step_width": tensors.side(f"{UNET}diffusion_step_encoder.1.weight", 1),
        "film": "scale_shift",
        "final_groups": FINAL_GROUPS,
    }


def cloning(algo: CkptConfig) -> dict[str, Any]:
    """The same of behaviour cloning, of one instant and one action."""
    for key in VARIANTS:
        variant = None if algo.get(key, None) is None else algo.object(key)
        if variant is not None and variant.get("enabled", allowed=(True, False)):
            raise variant.refused("enabled", True, OTHERWISE)
    found, hidden = modes(algo), algo.counts("actor_layer_dims")
    return {
        "type": "mlp",
        "history": 1,
        "horizon": 1,
        "network": {"hidden": hidden, **({"modes": found} if found else {})},
        "plans": {"once": {}},
    }


def modes(algo: CkptConfig) -> int | None:
    """How many modes the mixture has; None: the network gives the action itself."""
    if algo.get("gmm", None) is None or not algo.object("gmm").get("enabled", allowed=(True, False)):
        return None
    algo.object("gmm").get("low_noise_eval", allowed=(True,))
    return algo.object("gmm").count("num_modes")
