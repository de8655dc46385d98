"""The samplers of published policies, over whole trajectories: noise or clean actions predicted, any training length.

Guards: a coefficient, a clipping or a spacing that published weights were not trained for; a schedule of 100 steps
used for a network of 40 or 160; tables that half precision would spoil.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.policies.denoising import make_sampler
from tests.policies.trajectory import PUBLISHED, SHAPE, network, sampled, tape, written_out

TOLERANCE = 1e-4  # on samples of about 1 to 4, float32 tables against float64; measured: below 3e-5


@pytest.mark.parametrize(("name", "steps", "prediction", "training_steps"), PUBLISHED)
@pytest.mark.parametrize("spacing", ["leading", "linspace"])
def test_whole_trajectories_equal_the_papers_equations(
    name: str, steps: int, prediction: str, training_steps: int, spacing: str
) -> None:
    sampler = make_sampler(name, steps, prediction, training_steps, spacing)  # type: ignore[arg-type]
    noise = tape(sampler, 2)
    expected = written_out(name, prediction, sampler.timesteps.tolist(), training_steps, noise)
    for got, wanted in zip(sampled(sampler, noise), expected, strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("name", "steps", "prediction", "training_steps"), PUBLISHED)
def test_whole_trajectories_equal_diffusers(name: str, steps: int, prediction: str, training_steps: int) -> None:
    """In the configuration that published policies carry, step by step, with the same draws."""
    ddpm = pytest.importorskip("diffusers.schedulers.scheduling_ddpm")
    ddim = pytest.importorskip("diffusers.schedulers.scheduling_ddim")
    sampler = make_sampler(name, steps, prediction, training_steps, "leading")  # type: ignore[arg-type]
    common = {
        "num_train_timesteps": training_steps,
        "beta_start": 1e-4,
        "beta_end": 0.02,
        "beta_schedule": "squaredcos_cap_v2",
        "clip_sample": True,
        "prediction_type": prediction,
    }
    # On clean actions ours corrects the direction for the clipping, which diffusers does on request.
    extra = {"use_clipped_model_output": True} if (name, prediction) == ("ddim", "sample") else {}
    theirs = (
        ddpm.DDPMScheduler(**common, variance_type="fixed_small") if name == "ddpm" else ddim.DDIMScheduler(**common)
    )
    theirs.set_timesteps(steps)
    assert theirs.timesteps.tolist() == sampler.timesteps.tolist()
    random = torch.Generator().manual_seed(1)
    sample = torch.randn(1, *SHAPE, generator=random)
    for got, t in zip(sampled(sampler, tape(sampler, 1)), theirs.timesteps, strict=True):
        if name == "ddpm":
            extra = {"generator": random}
        sample = theirs.step(network(sample, t[None]), t, sample, **extra).prev_sample
        torch.testing.assert_close(got, sample, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "steps", "prediction", "clip"),
    [
        ("ddpm", 10, "epsilon", 1.0),
        ("ddpm", 33, "sample", 0.8),
        ("ddim", 8, "sample", 1.0),
        ("ddim", 7, "sample", 0.5),
        ("ddim", 8, "epsilon", None),
        ("ddpm", 100, "epsilon", None),
    ],
)
def test_samplers_as_foreign_checkpoints_ask_for_them_equal_diffusers(
    name: str, steps: int, prediction: str, clip: float | None
) -> None:
    """DDPM with fewer steps, DDIM towards uncorrected noise, other clipping or none."""
    schedulers = pytest.importorskip("diffusers.schedulers")
    sampler = make_sampler(name, steps, prediction, 100, "leading", clip, False)  # type: ignore[arg-type]
    theirs = {"ddpm": schedulers.DDPMScheduler, "ddim": schedulers.DDIMScheduler}[name](
        num_train_timesteps=100, beta_schedule="squaredcos_cap_v2", prediction_type=prediction,
        clip_sample=clip is not None, clip_sample_range=clip or 1.0,
    )  # fmt: skip
    theirs.set_timesteps(steps)
    random = torch.Generator().manual_seed(1)
    sample = torch.randn(1, *SHAPE, generator=random)
    for got, t in zip(sampled(sampler, tape(sampler, 1)), theirs.timesteps, strict=True):
        extra = {"generator": random} if name == "ddpm" else {}
        sample = theirs.step(network(sample, t[None]), t, sample, **extra).prev_sample
        torch.testing.assert_close(got, sample, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["ddpm", "ddim"])
def test_the_right_noise_leads_back_to_the_clean_actions(name: str) -> None:
    """Where the network is right about the noise, what it was mixed with comes out."""
    sampler = make_sampler(name, 100, "epsilon")  # type: ignore[arg-type]
    clean = torch.rand(2, 6, 2, generator=torch.Generator().manual_seed(0)) * 1.8 - 0.9
    shares = (1 / sampler.clean_of_noisy**2).flip(0)  # by timestep

    def right(x: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        alpha = shares[timestep][:, None, None]
        return (x - alpha.sqrt() * clean) / (1 - alpha).sqrt()

    torch.testing.assert_close(sampled(sampler, tape(sampler, 2), right)[-1], clean, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["ddpm", "ddim"])
@pytest.mark.parametrize("prediction", ["sample", "epsilon"])
def test_rows_at_different_steps_equal_each_alone(name: str, prediction: str) -> None:
    sampler = make_sampler(name, 40, prediction, 40)  # type: ignore[arg-type]
    index = torch.tensor([0, 39, 7, 20])
    noisy, predicted, noise = torch.randn(3, 4, 6, 2, generator=torch.Generator().manual_seed(0))
    together = sampler.step(noisy, predicted, noise, index)
    for row in range(4):
        one = slice(row, row + 1)
        assert torch.equal(together[one], sampler.step(noisy[one], predicted[one], noise[one], index[one]))


@pytest.mark.parametrize(
    ("steps", "training_steps", "timesteps"),
    [(4, 100, [75, 50, 25, 0]), (3, 100, [66, 33, 0]), (3, 4, [2, 1, 0]), (1, 100, [0])],
)
def test_leading_steps_are_the_multiples_of_a_whole_ratio(
    steps: int, training_steps: int, timesteps: list[int]
) -> None:
    assert make_sampler("ddim", steps, "epsilon", training_steps, "leading").timesteps.tolist() == timesteps


@pytest.mark.parametrize("change", ["half", "bfloat16", "double"])
def test_another_precision_of_the_module_leaves_the_tables_alone(change: str) -> None:
    sampler = make_sampler("ddpm", 100, "epsilon")
    before = {name: table.clone() for name, table in sampler.named_buffers()}
    getattr(torch.nn.Sequential(sampler), change)()
    for name, table in sampler.named_buffers():
        assert table.dtype == before[name].dtype
        assert torch.equal(table, before[name])


def test_the_tables_are_no_weights() -> None:
    assert not make_sampler("ddpm", 100, "epsilon").state_dict()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prediction": "velocity"}, "prediction must be 'sample' or 'epsilon', got 'velocity'"),
        ({"spacing": "trailing"}, "spacing must be 'linspace' or 'leading', got 'trailing'"),
        ({"training_steps": 1}, "training_steps must be a whole number in \\[2, 1000\\], got 1"),
        ({"training_steps": 100.0}, "training_steps must be .* got 100.0"),
        ({"training_steps": 7}, "ddim: steps must be a whole number in \\[1, 7\\], got 8"),
        ({"clip": 0.0}, "clip must be a number above zero or null, got 0.0"),
        ({"clip": float("inf")}, "clip must be"),
        ({"clip": True}, "clip must be"),
        ({"clip": "1"}, "clip must be"),
        ({"corrected": 1}, "corrected must be true or false, got 1"),
        ({"name": "ddpm", "training_steps": 40}, "ddpm runs all 40 training steps, got steps = 8"),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_sampler(**{"name": "ddim", "steps": 8, **changes})  # type: ignore[arg-type]
