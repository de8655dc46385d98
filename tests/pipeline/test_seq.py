"""The seq mode: one observation, one chunk, and a provenance that says the truth about it.

Guards: warm-up that shifts the noise or the counts; a request that sees another one's noise; a reference in the
state's order instead of the channels'.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.observation import Observation
from auras_ros.pipeline.load import CheckpointError, load_sequential
from auras_ros.pipeline.seq import Identity, Sequential
from auras_ros.policies.noise import noise_tape
from auras_ros.policies.policy import generate
from tests.policies import tiny

MS = 1_000_000
START_NS = 1_000 * MS


class Ticking(VirtualClock):
    """A millisecond passes whenever somebody looks."""

    def now_ns(self) -> int:
        self.advance(MS)
        return super().now_ns()


def observation(seed: int = 1, origin_ns: int = 900 * MS, position: tuple[float, ...] = (3.0, 4.0)) -> Observation:
    images, state = tiny.observed(1, seed)
    stamp_ns = origin_ns + 5_000 * MS
    stamps = ((stamp_ns - 100 * MS,), (stamp_ns,))
    return Observation(
        images[0].numpy(), state[0].numpy(), np.array(position), stamp_ns, origin_ns, 0, stamps, stamp_ns
    )


def sequential(seed: int = 5, plan: str = "quick", **changes: object) -> Sequential:
    identity = Identity(host="boot", session="life")
    return Sequential(tiny.checkpoint(**changes), plan, seed, Ticking(START_NS), identity)


def test_provenance_says_where_the_chunk_comes_from() -> None:
    seq, seen = sequential(), observation()
    frame = seq.run(seen)
    assert (frame.latched_ns, frame.perceived_ns, frame.generated_ns) == tuple(START_NS + k * MS for k in (1, 2, 3))
    source = frame.chunk.provenance
    assert source.origin_stamp_ns == seen.origin_stamp_ns
    assert source.origin_mono_ns == seen.origin_mono_ns
    assert (source.host, source.session) == ("boot", "life")
    assert (source.frame, source.request, source.epoch) == (0, 0, 0)
    assert source.context_age_ns == (START_NS + 2 * MS - seen.origin_mono_ns,)
    assert source.plan == "quick"
    assert source.checkpoint == "tiny@0123456789ab"


def test_the_chunk_is_the_policys_with_the_requests_noise() -> None:
    seq, seen = sequential(seed=5), observation()
    policy = seq.checkpoint.policy("quick")
    context = policy.perceive(torch.from_numpy(seen.images)[None], torch.from_numpy(seen.state)[None])
    for request in range(3):
        noise = noise_tape(policy.noise_shape, 5, request)[None]
        expected = generate(policy, noise, context)[0].numpy()
        np.testing.assert_array_equal(seq.run(seen).chunk.actions, expected)


def test_frames_and_requests_count_up_and_frames_is_how_many_are_done() -> None:
    seq = sequential()
    assert seq.frames == 0
    sources = [seq.run(observation()).chunk.provenance for _ in range(3)]
    assert [(s.frame, s.request) for s in sources] == [(0, 0), (1, 1), (2, 2)]
    assert seq.frames == 3


def test_warm_up_leaves_no_trace() -> None:
    cold, warm = sequential(), sequential()
    warm.warm_up()
    assert warm.frames == 0
    a, b = cold.run(observation()).chunk, warm.run(observation()).chunk
    np.testing.assert_array_equal(a.actions, b.actions)
    assert a.provenance == b.provenance


def test_warm_up_runs_the_stages_on_random_values() -> None:
    seq = sequential()
    contexts: list[torch.Tensor] = []
    perceive = seq._policy.perceive
    seq._policy.perceive = lambda images, state: contexts.append(images) or perceive(images, state)  # type: ignore
    seq.warm_up(runs=2)
    assert [tuple(images.shape) for images in contexts] == [(1, 2, 1, 3, tiny.SIDE, tiny.SIDE)] * 2
    assert all(images.std() > 0.5 for images in contexts)


def test_the_same_seed_gives_the_same_chunks_and_another_seed_others() -> None:
    a, b, c = (sequential(seed).run(observation()).chunk.actions for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3


def test_each_request_has_noise_of_its_own() -> None:
    seq = sequential()
    a, b = (seq.run(observation()).chunk.actions for _ in range(2))
    assert np.abs(a - b).max() > 1e-3


def test_reset_begins_an_epoch_and_goes_on_counting() -> None:
    seq = sequential()
    seq.run(observation())
    seq.reset()
    seq.reset()
    source = seq.run(observation()).chunk.provenance
    assert (source.epoch, source.frame, source.request) == (2, 1, 1)


def test_requests_are_paired_by_their_number() -> None:
    """An evaluation restarts the tape at an episode's own stretch: what ran before does not matter."""
    fresh, used = sequential(), sequential()
    for _ in range(4):
        used.run(observation(seed=9))
    fresh.reset(first_request=7000)
    used.reset(first_request=7000)
    a, b = fresh.run(observation()).chunk, used.run(observation()).chunk
    assert a.provenance.request == b.provenance.request == 7000
    np.testing.assert_array_equal(a.actions, b.actions)


def with_joints(*names: str) -> Sequential:
    spec = tiny.manifest()["observation"]
    count = len(names)
    limits = {"kind": "min_max", "min": [0.0] * count, "max": [1.0] * count}
    return sequential(observation={**spec, "state": {"names": list(names), "normalization": limits}})


@pytest.mark.parametrize(
    ("names", "position", "expected"),
    [
        (("agent_x", "agent_y"), (3.0, 4.0), [3.0, 4.0]),
        (("agent_y", "agent_x"), (3.0, 4.0), [4.0, 3.0]),
        (("elbow", "agent_y"), (3.0, 4.0), [np.nan, 4.0]),
        (("agent_y", "elbow", "agent_x"), (3.0, 4.0, 5.0), [5.0, 3.0]),
    ],
)
def test_the_reference_is_in_channel_order(
    names: tuple[str, ...], position: tuple[float, ...], expected: list[float]
) -> None:
    seen = observation(position=position)
    seen = replace(seen, state=np.zeros((2, len(names)), np.float32))
    reference = with_joints(*names).run(seen).chunk.reference
    assert reference is not None
    np.testing.assert_array_equal(reference, expected)


def test_a_policy_without_state_has_no_reference() -> None:
    spec = tiny.manifest()["observation"]
    seq = sequential(observation={**spec, "state": None})
    seq.warm_up(runs=1)
    seen = replace(observation(), state=np.zeros((2, 0), np.float32), position=np.zeros(0))
    assert seq.run(seen).chunk.reference is None


def test_the_plan_chooses_the_sampler() -> None:
    a, b = (sequential(plan=plan).run(observation()).chunk for plan in ("quick", "fine"))
    assert (a.provenance.plan, b.provenance.plan) == ("quick", "fine")
    assert np.abs(a.actions - b.actions).max() > 1e-3


def test_load_gives_a_warm_executor_of_the_folder(tmp_path: Path) -> None:
    tiny.write(tmp_path)
    threads = torch.get_num_threads()
    try:
        seq = load_sequential(tmp_path, "fine", 3, VirtualClock(), Identity("h", "s"), threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert seq.frames == 0
    source = seq.run(observation()).chunk.provenance
    assert (source.plan, source.host, source.session, source.request) == ("fine", "h", "s", 0)


@pytest.mark.parametrize(
    ("plan", "spoil", "said"),
    [
        ("slow", lambda folder: None, "no plan 'slow'"),
        ("quick", lambda folder: (folder / "golden.safetensors").unlink(), "golden.safetensors: file not found"),
    ],
)
def test_load_refuses_by_name(tmp_path: Path, plan: str, spoil: object, said: str) -> None:
    tiny.write(tmp_path)
    spoil(tmp_path)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=said):
        load_sequential(tmp_path, plan, 0, VirtualClock(), Identity())
