"""What LeRobot's worker does with a policy, without LeRobot: which noise it gets, and what of its time is counted.

Guards: a first request that counts; one observation seen again and again; noise drawn where it is to be given; a
compiled network timed as the eager one.
"""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.bench.peers import lerobot_worker
from auras_ros.bench.peers.lerobot_worker import IMAGES, STATE, Peer


class Policy:
    """Stands in for LeRobot's: notes what it sees, and draws noise as the DDPM scheduler of diffusers does."""

    def __init__(self, draws: int = 2) -> None:
        self.config = types.SimpleNamespace(device="cpu")
        self.diffusion = self
        self.unet: Any = None
        self.draws, self.seen = draws, []

    def generate_actions(self, batch: dict[str, Tensor], noise: Tensor | None = None) -> Tensor:
        self.seen.append((self.unet, float(batch[STATE].sum())))
        assert batch[IMAGES].shape == (1, 2, 1, 3, 4, 4)
        if noise is None:
            return torch.zeros(1, 3, 2)
        from diffusers.schedulers import scheduling_ddpm

        drawn = [scheduling_ddpm.randn_tensor(noise.shape, device=noise.device) for _ in range(self.draws)]
        return noise + sum(10**i * each for i, each in enumerate(drawn, 1))


@pytest.fixture
def peer(tmp_path: Path) -> Peer:
    made = Peer()
    made._policy, made._networks = Policy(), {False: "eager", True: "compiled"}
    made._after = lambda chunk: chunk * 2
    tensors = {"images": torch.zeros(3, 2, 1, 3, 4, 4), "state": torch.arange(3.0)[:, None, None].expand(3, 2, 1)}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "seen")
    made.observe(str(tmp_path / "seen"))
    return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each request takes, in turn."""
    times: list[float] = []
    now, ends = [0.0], iter([False, True] * 100)

    def perf_counter() -> float:
        if next(ends):
            now[0] += times.pop(0)
        return now[0]

    monkeypatch.setattr(lerobot_worker.time, "perf_counter", perf_counter)
    return times


def test_the_first_request_is_not_counted_and_observations_take_turns(peer: Peer, clock: list[float]) -> None:
    clock += [100.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert peer.time(chunks=2, seconds=5.5, compiled=False) == {"seconds": [1.0, 2.0, 3.0]}
    assert peer._policy.seen == [("eager", 4.0), ("eager", 0.0), ("eager", 2.0), ("eager", 4.0)]
    assert len(peer.time(chunks=1, seconds=0.0, compiled=True)["seconds"]) == 1
    assert [network for network, _ in peer._policy.seen[4:]] == ["compiled", "compiled"]


def test_compiling_is_a_request_of_its_own(peer: Peer, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch, "compile", lambda network, mode: asked.append((network, mode)) or "made")
    clock += [0.0, 60.0]
    assert peer.compile()["mode"] == "reduce-overhead"
    assert asked == [("eager", "reduce-overhead")]
    assert peer._policy.seen == [("made", 0.0)]


def outputs(peer: Peer, folder: Path, draws: int) -> Tensor:
    noise = torch.arange(1.0, 2 * draws + 1).view(2, draws, 1, 1).expand(-1, -1, 3, 2)
    images, state = torch.zeros(2, 2, 1, 3, 4, 4), torch.zeros(2, 2, 1)
    save_file({"images": images, "state": state, "noise": noise.contiguous()}, folder / "in")
    peer.outputs(str(folder / "in"), str(folder / "out"), compiled=True)
    return load_file(folder / "out")["actions"]


def test_noise_is_given_in_order_and_actions_are_the_robots(peer: Peer, tmp_path: Path) -> None:
    scheduling_ddpm = pytest.importorskip("diffusers.schedulers.scheduling_ddpm")
    before = scheduling_ddpm.randn_tensor
    got = outputs(peer, tmp_path, draws=3)
    assert got.shape == (2, 3, 2)
    assert got[:, 0, 0].tolist() == [2 * (1 + 20 + 300), 2 * (4 + 50 + 600)]
    assert peer._policy.seen[0][0] == "compiled"
    assert scheduling_ddpm.randn_tensor is before


def test_more_noise_than_was_given_is_refused(peer: Peer, tmp_path: Path) -> None:
    scheduling_ddpm = pytest.importorskip("diffusers.schedulers.scheduling_ddpm")
    before = scheduling_ddpm.randn_tensor
    with pytest.raises(RuntimeError, match="2 draws of noise were given, but LeRobot draws more"):
        outputs(peer, tmp_path, draws=2)
    assert scheduling_ddpm.randn_tensor is before


def test_what_libraries_print_is_no_answer(tmp_path: Path) -> None:
    """The worker's answers have a descriptor of their own."""
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); from lerobot_worker import _own_stdout\n"
        "answers = _own_stdout(); print('noise', flush=True); os.system('echo more noise')\n"
        "print('{}', file=answers, flush=True)"
    )
    folder = str(Path(lerobot_worker.__file__).parent)
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.stdout == "{}\n"
    assert done.stderr.split("\n") == ["noise", "more noise", ""]
