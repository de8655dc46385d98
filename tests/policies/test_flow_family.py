"""Checkpoints of flow matching policies: written, read, run in every mode; each wrong description refused.

Guards: a model that reads other sizes than it was written with; statistics taken for a range; a chunk that is not the
part that is executed; a golden sample that does not notice a prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import PipelineSettings, load_pipeline
from auras_ros.models.pi0 import Pi0
from auras_ros.models.smolvla import SmolVla
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.checkpoint import Checkpoint, build, load
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.policy import generate
from tests.pipeline.real import real, run
from tests.policies import flow_checkpoints as tiny
from tests.policies.spoil import edit_manifest


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp("flow") / kind for kind in tiny.KINDS}
    for kind, folder in made.items():
        tiny.write(folder, kind)
    return made


def opened(folder: Path) -> tuple[Checkpoint, FlowMatchingPolicy, tuple[Tensor, Tensor]]:
    checkpoint = load(folder)
    policy = checkpoint.policy("euler")
    assert isinstance(policy, FlowMatchingPolicy)
    return checkpoint, policy, observed(checkpoint.spec, GoldenSample.load(folder / "golden.safetensors"))


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_a_written_checkpoint_loads_and_is_what_it_was_written_as(folders: dict[str, Path], kind: str) -> None:
    checkpoint, policy, (images, state) = opened(folders[kind])
    model = policy.prefix.model
    assert checkpoint.verified
    assert checkpoint.horizon == 4
    assert isinstance(model, SmolVla if kind == "smolvla" else Pi0)
    config = tiny.CONFIGS[kind]
    assert (model.config.vision, model.config.language, model.config.expert) == (
        config.vision,
        config.language,
        config.expert,
    )
    noise = torch.randn((1, *policy.noise_shape), generator=torch.Generator().manual_seed(1))
    context = policy.perceive(images, state)
    actions = generate(policy, noise, context)
    assert actions.shape == (1, 4, 3)
    assert policy.steps == 4
    assert checkpoint.policy("coarse").steps == 2
    begun = policy.begin(noise)
    mean, std = (torch.tensor(tiny.manifest(kind)["statistics"][key]).double() for key in ("mean", "std"))
    torch.testing.assert_close(policy.finish(begun), mean + std * noise[:, :4, :3].double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_every_mode_runs_it_and_on_a_still_world_they_agree(folders: dict[str, Path], kind: str) -> None:
    _, policy, (images, state) = opened(folders[kind])
    seen = [Latched(images, state, ObservationOrigin(frame, frame)) for frame in range(7)]
    found = {}
    for text in ("all", "all,mode=dec", "all,mode=par,concurrency=2", "all,mode=auras,pp_generation=2,pp_perception=2"):
        emissions = run(real(Plan.parse(text), policy, (3,), seen[0]), seen)
        found[text] = {emission.request: emission.actions for emission in emissions}
    shared = set.intersection(*(set(each) for each in found.values()))
    assert shared
    for text, actions in found.items():
        for request in shared:
            torch.testing.assert_close(actions[request], found["all"][request], rtol=0, atol=2e-4, msg=text)


def test_a_pipeline_loads_one(folders: dict[str, Path]) -> None:
    plan = Plan(generation="euler", mode="auras", pp_generation=2)
    pipeline = load_pipeline(folders["pi0"], plan, PipelineSettings(), VirtualClock())
    assert pipeline.executor.frame_ns >= 0
    pipeline.executor.close()


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_the_golden_sample_notices_another_prompt(folders: dict[str, Path], kind: str, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(folders[kind], tmp_path / "copy"))
    edit_manifest(folder, lambda raw: raw["network"].update(prompt=[2, 77, 9]))
    with pytest.raises(CheckpointError, match="golden sample: plan 'euler'"):
        load(folder)


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_all_plans_have_the_prompt_that_is_set(folders: dict[str, Path], kind: str) -> None:
    checkpoint, policy, given = opened(folders[kind])
    before = policy.perceive(*given)
    policy.set_prompt(torch.tensor([2, 4, 4, 5, 6, 7]))
    other = checkpoint.policy("coarse").perceive(*given)
    assert not torch.equal(other, before)
    assert torch.equal(other, policy.perceive(*given))


def sizes(part: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda raw: raw["network"][part].update(changes)


def put(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda raw: raw["network"].update(changes)


def top(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda raw: raw.update(changes)


FAULTS: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "no object": ("pi0", top(network=[1]), r"network: \[1\] is not an object"),
    "model": ("pi0", put(model="pi1"), "network: model 'pi1' is not known; known: pi0, pi05, smolvla"),
    "no model": ("pi0", lambda raw: raw["network"].pop("model"), "network: model None is not known"),
    "missing": ("pi0", lambda raw: raw["network"].pop("expert"), "network: 'expert' is missing"),
    "unknown": ("pi0", put(fold=2), "network: 'fold' is unknown"),
    "of pi05": ("pi05", lambda raw: raw["network"].pop("numbers"), "network: 'numbers' is missing"),
    "encoder": ("pi0", top(encoder={"type": "resnet18"}), "encoder: .* expected {}"),
    "size": ("pi0", sizes("vision", width="8"), "network: vision: width: '8' is not of type int"),
    "keys that do not fit": (
        "pi0",
        sizes("expert", kv_heads=1),
        "pi0: kv_heads: 2 in the language model, 1 in the exp",
    ),
    "heads": ("smolvla", sizes("expert", heads=2), "smolvla: heads: 4 in the language model, 2 in the expert"),
    "fold": ("smolvla", put(fold=3), "smolvla: fold: 3 does not divide the 4 patches of a side"),
    "around": ("smolvla", put(around=[[1]]), "network: around: .* is not .ids before an image, ids after it."),
    "around a picture": (
        "smolvla",
        put(around=[[512], []]),
        r"network: around\[0\]: \[512\] is not a list of token ids",
    ),
    "empty": ("smolvla", put(empty=-1), "network: empty: -1 is not a whole number of 0 or more"),
    "every": ("smolvla", put(self_attention_every=-1), "self_attention_every: -1 is not a whole number of 0"),
    "pictures": ("pi0", sizes("vision", image_px=42), "cameras of 3 x 28 x 28, expected at least one of 3 x 42 x 42"),
    "state": ("pi0", put(state=2), "state: the robot has 3, the network takes 1 to 2"),
    "actions": ("pi05", put(actions=2), "actions: the robot has 3, the network takes 1 to 2"),
    "horizon": ("pi0", top(horizon="6", executed=None), "horizon: '6' is not a whole number|executed"),
    "numbers": ("pi05", put(numbers=[[1]] * 256), "numbers: 256 lists of ids, expected 257"),
    "a number without tokens": ("pi05", put(numbers=[[]] + [[1]] * 256), "expected 257, of -1 to 255, none empty"),
    "a number of no list": ("pi05", put(numbers=[1] * 257), r"network: numbers\[0\]: 1 is not a list of token ids"),
    "numbers of no list": ("pi05", put(numbers=3), "network: numbers: int, expected a list"),
    "after": ("pi05", put(after=[-1]), r"network: after: \[-1\] is not a list of token ids below 512"),
    "prompt": ("pi0", put(prompt=[512]), "prompt: id 512 is not below the vocabulary, 512"),
    "long prompt": ("pi0", put(prompt=[1] * 7), "prompt: 7 tokens, more than prompt_limit, 6"),
    "steps": ("pi0", top(plans={"euler": {"steps": 0}}), "plan 'euler': steps: 0 is less than 1"),
    "no steps": ("pi0", top(plans={"euler": {}}), "plan 'euler': 'steps' is missing"),
    "steps in words": ("pi0", top(plans={"euler": {"steps": "4"}}), "steps: '4' is not a whole number"),
    "sampler": ("pi0", top(plans={"euler": {"steps": 4, "sampler": "ddim"}}), "key 'sampler' is unknown"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_description_is_refused_by_name(fault: str) -> None:
    kind, spoil, why = FAULTS[fault]
    raw = tiny.manifest(kind)
    spoil(raw)
    with pytest.raises(CheckpointError, match=why):
        build(raw, "", Path("policy.json")).policy("euler")
