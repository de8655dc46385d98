"""docs/write-a-policy.md: the file that it shows is taken from the page, registered as another package would, written
as a checkpoint, loaded and run in every mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.action import Channel, ChannelKind, Contract, HoldPolicy
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.observation import CameraSpec, ObservationSpec, StateSpec
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies import checkpoint
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.families import FAMILIES, find
from auras_ros.policies.writing import Description, write
from tests.another_package import POLICY as PAGE
from tests.another_package import code_of, install

SIDE = 8
SPEC = ObservationSpec(
    (CameraSpec("top", SIDE, SIDE, mean=(0.5,) * 3, std=(0.5,) * 3),),
    StateSpec(("x", "y"), "min_max", (0.0, 0.0), (1.0, 1.0)),
    history=1,
    dt_ms=100,
)
CONTRACT = Contract(
    tuple(Channel(axis, "m", ChannelKind.ABSOLUTE, 0.0, 1.0, "table", 1.0, HoldPolicy.LAST) for axis in "xy"), 100
)


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(PAGE, tmp_path, monkeypatch)


@pytest.fixture
def written(registered: None, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    plans = {"all": {}}
    description = Description("reach", "reach", 4, SPEC, CONTRACT, [0.0, 0.0], [1.0, 1.0], plans, {"features": 16})
    from auras_ros.policies.architecture import Architecture

    shape = Architecture("reach", 1, (SIDE, SIDE), 1, 2, 4, 2)
    networks = find("reach").networks(description.encoder, {}, shape)
    images = np.random.default_rng(0).integers(0, 255, (1, SIDE, SIDE, 3), np.uint8)
    folder = tmp_path / "reach"
    write(folder, description, dict(networks.items()), {"top": images}, {"x": np.array([0.2]), "y": np.array([0.7])})
    return folder


def chunk(loaded: Checkpoint, plan: Plan) -> torch.Tensor:
    """The first chunk of one observation held still."""
    policy = loaded.policy("all")
    images, state = policy.example(1, torch.Generator().manual_seed(1))
    run = make_executor(
        RunContext(policy, plan, noise_of(policy, 0), Latched(images, state, ObservationOrigin(0, 0)), VirtualClock())
    )
    for now in range(1, 20):
        for worker in run.workers:
            if worker.wants(Latched(images, state, ObservationOrigin(1, 1)), now):
                worker.begin(Latched(images, state, ObservationOrigin(1, 1)), now)
                worker.run()
                emission = worker.end(now)
                if emission is not None:
                    run.close()
                    return emission.actions
    raise AssertionError("no chunk")


def test_the_page_s_policy_runs_in_every_mode(written: Path) -> None:
    loaded = checkpoint.load(written)
    expected = chunk(loaded, Plan("all"))
    assert expected.shape == (1, 4, 2)
    assert 0 < float(expected.min()) < float(expected.max()) < 1
    for text in (
        "all,mode=dec",
        "all,mode=par,concurrency=2",
        "all,mode=auras,pp_generation=3",
        "all,mode=auras,pp_perception=2",
    ):
        assert torch.allclose(chunk(loaded, Plan.parse(text)), expected, atol=1e-6), text


def test_the_page_trains_writes_and_runs_it(
    registered: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = code_of(PAGE)[1]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script, names)
    assert np.allclose(names["chunk"].values[-1], [6 / 8, 2 / 8], atol=0.1)
    assert capsys.readouterr().out.startswith("('x', 'y') [0.")
    loaded = checkpoint.load(tmp_path / "checkpoints" / "reach")
    assert loaded.verified
    assert torch.allclose(chunk(loaded, Plan("all")), chunk(loaded, Plan.parse("all,mode=dec")), atol=1e-6)


def test_what_its_package_does_not_have_is_said_by_name(written: Path) -> None:
    manifest = written / checkpoint.MANIFEST
    manifest.write_text(manifest.read_text().replace('"type": "reach"', '"type": "grasp"'))
    with pytest.raises(CheckpointError, match=f"type 'grasp' is not known; known: {', '.join([*FAMILIES, 'reach'])}"):
        checkpoint.load(written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def f(:\n", "SyntaxError"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_said_by_name(written: Path, tmp_path: Path, text: str, said: str) -> None:
    sys.modules.pop("reach_policy", None)
    (tmp_path / "reach_policy.py").write_text(text)
    with pytest.raises(
        CheckpointError, match=f"type 'reach': entry point reach_policy:family cannot be loaded: {said}"
    ):
        checkpoint.load(written)
