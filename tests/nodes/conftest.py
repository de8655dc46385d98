"""A ROS domain, a checkpoint and children for each test of the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.action import Contract
from auras_ros.nodes.actuator.settings import load_contract, load_digest
from tests.nodes.stand_ins import FakeAgent, Robot
from tests.nodes.wire import PATIENT, Child, Children, Watch, own_domain


@pytest.fixture
def domain() -> Iterator[int]:
    """A ROS domain for one test and its children, used by nobody else and not by the test before."""
    with own_domain() as number:
        yield number


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An untrained policy of the shipped form, as a folder. Its contract is the shipped one."""
    pytest.importorskip("gym_pusht", reason="the golden sample is a picture of the simulator")
    import torch

    from auras_ros.models.keypoint_encoder import KeypointEncoder
    from auras_ros.models.unet1d import ConditionalUnet1d
    from tests.train.checkpoints import write_checkpoint

    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("checkpoints") / "untrained"
    write_checkpoint(folder, "untrained", KeypointEncoder(), ConditionalUnet1d(2, 132))
    return str(folder)


@pytest.fixture(scope="session")
def vlm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny vision-language model with random weights."""
    pytest.importorskip("transformers", reason="writes the folder")
    from tests.checkpoints.vlm import folders

    return folders.write("smolvlm", tmp_path_factory.mktemp("vlm") / "tiny").path


@pytest.fixture
def children(domain: int, tmp_path: Path) -> Iterator[Children]:
    starter = Children(tmp_path)
    yield starter
    starter.reap()


@pytest.fixture
def watch(domain: int) -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


@pytest.fixture
def robot(watch: Watch) -> Iterator[Robot]:
    made = Robot(watch.node)
    yield made
    made.close()


@pytest.fixture
def contract(checkpoint: str) -> Contract:
    return load_contract(checkpoint)


@pytest.fixture
def digest(checkpoint: str) -> str:
    """Of the checkpoint with that contract."""
    return load_digest(checkpoint)


@pytest.fixture
def fake(watch: Watch, contract: Contract, digest: str) -> Iterator[FakeAgent]:
    """An agent in this process, for faults in what it says rather than in its life."""
    made = FakeAgent(watch.node, contract, digest)
    yield made
    made.still()


@pytest.fixture
def actuator(children: Children, checkpoint: str) -> Callable[..., Child]:
    """Start the actuator. Where its watchdogs are not the point, it is patient: a busy machine may stall the test, or
    it."""

    def start(*, code: str = "", patient: bool = True, **parameters: Any) -> Child:
        given = {"checkpoint": checkpoint, "agent_timeout_ms": 1000.0, **parameters}
        return children.node("actuator", given, code=PATIENT + code if patient else code)

    return start
