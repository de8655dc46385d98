"""Demonstrations: kept only where they succeed, saved whole, joined without mixing episodes.

Guards: a window of training that reaches over an episode's end; a collection without a single success that ends in an
obscure error after hours; a disturbed action recorded as the expert's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import StepResult
from auras_ros.train.demonstrations import (
    Demonstrations,
    DemonstrationSettings,
    _Disturbance,
    expert_episodes,
    takeover_episodes,
)
from auras_ros.train.diffusion import HORIZON, Windows
from auras_ros.train.push_table import corners
from auras_ros.train.pusht_task import HALF_PX, PUSHT


def made(*lengths: int) -> Demonstrations:
    """Episodes of these lengths; frame i is an image of value i, and its action is i."""
    count = sum(lengths)
    index = np.arange(count)
    return Demonstrations(
        np.broadcast_to(index[:, None, None, None, None] % 256, (count, 1, 2, 2, 3)).astype(np.uint8),
        np.stack([index, 2 * index], 1).astype(np.float32),
        np.stack([index, index, index], 1).astype(np.float32),
        np.stack([index, -index], 1).astype(np.float32),
        np.repeat(np.arange(len(lengths)), lengths),
    )


def same(a: Demonstrations, b: Demonstrations) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Demonstrations))


def test_save_and_load(tmp_path: Path) -> None:
    data = made(3, 2)
    data.save(tmp_path / "expert.npz")
    assert same(Demonstrations.load(tmp_path / "expert.npz"), data)
    assert [path.name for path in tmp_path.iterdir()] == ["expert.npz"]


def test_a_file_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "expert.npz"
    np.savez(path, **{f.name: np.array([object()]) for f in fields(Demonstrations)}, allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        Demonstrations.load(path)


def test_join_keeps_the_order_and_tells_episodes_apart() -> None:
    joined = Demonstrations.join([made(2, 1), made(3), made(1, 1)])
    assert joined.episode.tolist() == [0, 0, 1, 2, 2, 2, 3, 4]
    assert joined.actions[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert len(joined.images) == 8


def test_join_passes_over_a_part_without_episodes() -> None:
    joined = Demonstrations.join([made(2), made(), made(1)])
    assert joined.episode.tolist() == [0, 0, 1]


def test_join_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="none of them succeeded"):
        Demonstrations.join([made(), made()])


class Encoder:
    """Features that are the image's value: stands where `KeypointEncoder` does."""

    feature_mean, feature_std = torch.zeros(1), torch.ones(1)

    def raw(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, :1, 0, 0]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_window_never_crosses_an_episodes_boundary(lengths: list[int]) -> None:
    data = made(*lengths)
    windows = Windows.of([Encoder()], PUSHT, data)  # type: ignore[list-item]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    for frame, episode in enumerate(data.episode):
        assert int(windows.previous[frame]) == max(frame - 1, starts[episode])
        assert int(windows.last[frame]) == ends[episode] - 1
    torch.manual_seed(0)
    condition, actions = windows.batch(64)
    assert condition.shape == (64, 2 * (1 + 2))
    assert actions.shape == (64, HORIZON, 2)
    now = ((condition[:, 4] + 1) * HALF_PX).round().long()
    before = ((condition[:, 1] + 1) * HALF_PX).round().long()
    taken = ((actions[..., 0] + 1) * HALF_PX).round().long().numpy()
    for row, frame in enumerate(now.tolist()):
        episode = data.episode[frame]
        assert before[row] == max(frame - 1, starts[episode])
        expected = np.minimum(np.arange(frame, frame + HORIZON), ends[episode] - 1)
        np.testing.assert_array_equal(taken[row], expected)


def test_keypoint_targets_are_corners_and_agent_in_table_units() -> None:
    data = made(3)
    targets = PUSHT.keypoints(data)
    assert targets.shape == (3, 18)
    expected = np.append(corners(data.truth[2].astype(float)).ravel(), data.state[2]) / HALF_PX - 1
    np.testing.assert_allclose(targets[2], expected, atol=1e-5)


class Marked(PushTWorld):
    """A table that is solved in the step that `solved_at` says for its seed; never, where it says 0."""

    solved_at: Callable[[int], int]
    executed: list[NDArray[np.float64]]

    def __init__(self) -> None:
        pass

    def reset(self, seed: int) -> None:
        self.due, self.steps = Marked.solved_at(seed), 0

    def state(self) -> dict[str, float]:
        return {"agent_x": 50.0, "agent_y": 50.0}

    def image(self, camera: str = "top", height: int = 96, width: int = 96) -> NDArray[np.uint8]:
        return np.zeros((height, width, 3), np.uint8)

    def step(self, action: NDArray[np.float64]) -> StepResult:
        Marked.executed.append(action)
        self.steps += 1
        return StepResult(0.0, self.steps == self.due)


class Beyond:
    """An expert whose targets are beyond the table."""

    def reset(self) -> None:
        pass

    def act(self, world: Marked) -> NDArray[np.float64]:
        return np.array([100.0, 600.0])

    def truth(self, world: Marked) -> NDArray[np.float64]:
        return np.zeros(3)


def make(random: np.random.Generator) -> Marked:
    return Marked()


@pytest.fixture
def simulated() -> type[Marked]:
    Marked.executed = []
    Marked.solved_at = staticmethod(lambda seed: 3)
    return Marked


def test_only_episodes_that_succeed_are_kept(simulated: type[Marked]) -> None:
    simulated.solved_at = staticmethod(lambda seed: {10: 3, 11: 0, 12: 5}[seed])
    said: list[str] = []
    data = expert_episodes(DemonstrationSettings(3, 10), make, Beyond(), said.append)
    assert data.episode.tolist() == [0] * 3 + [1] * 5
    assert said[-1] == "episode 3/3, 2 kept"


def test_the_experts_action_is_recorded_whatever_is_executed(simulated: type[Marked]) -> None:
    simulated.solved_at = staticmethod(lambda seed: 200)
    data = expert_episodes(
        DemonstrationSettings(1, 10, disturbance=50.0, margin=15.0), make, Beyond(), lambda text: None
    )
    assert (data.actions == [100.0, 512.0]).all(), "clipped to the table, never disturbed"
    assert (np.array(simulated.executed) != [100.0, 512.0]).any()


def test_each_episode_has_a_world_of_its_own(simulated: type[Marked]) -> None:
    drifts: list[float] = []

    def drawn(random: np.random.Generator) -> Marked:
        drifts.append(float(random.uniform(0.1, 1.5)))
        return Marked()

    expert_episodes(DemonstrationSettings(5, 10), drawn, Beyond(), lambda text: None)
    assert len(set(drifts)) == 5


def test_no_success_at_all_is_an_empty_collection(simulated: type[Marked], tmp_path: Path) -> None:
    simulated.solved_at = staticmethod(lambda seed: 0)
    data = expert_episodes(DemonstrationSettings(1, 10), make, Beyond(), lambda text: None)
    assert [len(getattr(data, f.name)) for f in fields(Demonstrations)] == [0] * 5
    data.save(tmp_path / "none.npz")
    assert same(Demonstrations.join([made(2), Demonstrations.load(tmp_path / "none.npz")][:1]), made(2))


def test_a_policy_that_finishes_leaves_nothing_to_take_over(simulated: type[Marked]) -> None:
    said: list[str] = []
    data = takeover_episodes(
        DemonstrationSettings(2, 10), make, Beyond(), lambda: lambda images, state: np.zeros(2), said.append
    )
    assert len(data.episode) == 0
    assert said[-1] == "episode 2/2, policy finished 2, 0 taken over"


def test_the_expert_takes_over_where_the_policy_stands_and_only_it_is_recorded(simulated: type[Marked]) -> None:
    simulated.solved_at = staticmethod(lambda seed: 165)  # after the policy's longest drive, within the expert's
    settings = DemonstrationSettings(1, 10)
    data = takeover_episodes(settings, make, Beyond(), lambda: lambda images, state: np.zeros(2), lambda text: None)
    driven = sum(not action.any() for action in simulated.executed)
    assert 10 <= driven < 160
    assert len(data.episode) == 165 - driven
    assert (data.actions == [100.0, 512.0]).all()


def test_a_disturbance_stays_on_the_table_and_none_is_none() -> None:
    random = np.random.default_rng(0)
    action = np.array([20.0, 490.0])
    low, high = np.full(2, 15.0), np.full(2, 497.0)
    none = _Disturbance(0.0, random, low, high)
    assert all(none.apply(action) is action for _ in range(100))
    strong = _Disturbance(500.0, random, low, high)
    executed = np.array([strong.apply(action) for _ in range(400)])
    changed = (executed != action).any(1)
    assert 0.02 < changed.mean() < 0.4
    assert executed[changed].min() >= 15.0
    assert executed[changed].max() <= 497.0
