"""One robot's pipeline in seq: one observation, one chunk, and a provenance that says the truth about it.

Guards: warm-up that shifts the noise or the counts; a request that sees another one's noise; a reference in the
state's order instead of the channels'.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.action import Chunk
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.clock import VirtualClock
from auras_ros.device import Device, DeviceError, make_device
from auras_ros.loading.pipeline import MEASURES, Pipeline, PipelineSettings, at_best, load_pipeline
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.observation import Observation
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan, PlanError, TooSlowError
from auras_ros.pipeline.request import Emission
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
    return Observation(images[0].numpy(), state[0].numpy(), np.array(position), stamp_ns, origin_ns, stamps, stamp_ns)


def sequential(seed: int = 5, plan: str = "quick", **changes: object) -> Pipeline:
    return Pipeline(tiny.checkpoint(**changes), Plan(plan), PipelineSettings(seed, "boot", "life"), Ticking(START_NS))


def run(pipeline: Pipeline, seen: Observation) -> tuple[Emission, Chunk]:
    """One frame on an observation that is newer than all before."""
    [worker] = pipeline.executor.workers
    seen = replace(seen, origin_mono_ns=seen.origin_mono_ns + pipeline.executor.frames)
    worker.begin(pipeline.latched(seen), pipeline.executor.clock.now_ns())
    worker.run()
    emission = worker.end(0)
    assert emission is not None
    return emission, pipeline.chunk(emission)


def chunk(pipeline: Pipeline, seen: Observation) -> Chunk:
    return run(pipeline, seen)[1]


def test_provenance_says_where_the_chunk_comes_from() -> None:
    seq, seen = sequential(), observation()
    emission, made = run(seq, seen)
    times = [emission.latched_ns, emission.perceived_ns, emission.generated_ns]
    assert times == sorted(times)
    assert len(set(times)) == 3
    source = made.provenance
    assert source.origin_stamp_ns == seen.origin_stamp_ns
    assert source.origin_mono_ns == seen.origin_mono_ns
    assert (source.host, source.session) == ("boot", "life")
    assert (source.frame, source.request, source.epoch) == (0, 0, 0)
    assert source.context_age_ns == (emission.perceived_ns - seen.origin_mono_ns,)
    assert source.plan == "quick"
    assert source.checkpoint == "tiny@0123456789ab"


def test_the_chunk_is_the_policys_with_the_requests_noise() -> None:
    seq, seen = sequential(seed=5), observation()
    policy = seq.checkpoint.policy("quick")
    context = policy.perceive(torch.from_numpy(seen.images)[None], torch.from_numpy(seen.state)[None])
    for request in range(3):
        noise = noise_tape(policy.noise_shape, 5, request)[None]
        expected = generate(policy, noise, context)[0].numpy()
        np.testing.assert_array_equal(chunk(seq, seen).actions, expected)


def test_frames_and_requests_count_up_and_frames_is_how_many_are_done() -> None:
    seq = sequential()
    assert seq.executor.frames == 0
    sources = [chunk(seq, observation()).provenance for _ in range(3)]
    assert [(s.frame, s.request) for s in sources] == [(0, 0), (1, 1), (2, 2)]
    assert seq.executor.frames == 3


def test_warm_up_leaves_no_trace() -> None:
    cold, warm = sequential(), sequential()
    warm.warm_up()
    assert warm.executor.frames == 0
    a, b = chunk(cold, observation()), chunk(warm, observation())
    np.testing.assert_array_equal(a.actions, b.actions)
    assert replace(a.provenance, context_age_ns=()) == replace(b.provenance, context_age_ns=())  # time went on


def test_warm_up_runs_the_stages_on_random_values() -> None:
    seq = sequential()
    contexts: list[torch.Tensor] = []
    policy = seq.executor.policy
    perceive = policy.perceive
    policy.perceive = lambda images, state: contexts.append(images.clone()) or perceive(images, state)  # type: ignore
    seq.warm_up()
    assert len(contexts) > 1
    assert {tuple(images.shape) for images in contexts} == {(1, 2, 1, 3, tiny.SIDE, tiny.SIDE)}
    assert all(images.std() > 0.5 for images in contexts)


def test_the_same_seed_gives_the_same_chunks_and_another_seed_others() -> None:
    a, b, c = (chunk(sequential(seed), observation()).actions for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-3


def test_each_request_has_noise_of_its_own() -> None:
    seq = sequential()
    a, b = (chunk(seq, observation()).actions for _ in range(2))
    assert np.abs(a - b).max() > 1e-3


def test_reset_begins_an_epoch_and_goes_on_counting() -> None:
    seq = sequential()
    chunk(seq, observation())
    seq.executor.reset()
    seq.executor.reset()
    source = chunk(seq, observation()).provenance
    assert (source.epoch, source.frame, source.request) == (2, 1, 1)


def test_requests_are_paired_by_their_number() -> None:
    """An evaluation restarts the tape at an episode's own stretch: what ran before does not matter."""
    fresh, used = sequential(), sequential()
    for _ in range(4):
        chunk(used, observation(seed=9))
    fresh.executor.reset(first_request=7000)
    used.executor.reset(first_request=7000)
    a, b = chunk(fresh, observation()), chunk(used, observation())
    assert a.provenance.request == b.provenance.request == 7000
    np.testing.assert_array_equal(a.actions, b.actions)


def with_joints(*names: str) -> Pipeline:
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
    reference = chunk(with_joints(*names), seen).reference
    assert reference is not None
    np.testing.assert_array_equal(reference, expected)


def test_a_policy_without_state_has_no_reference() -> None:
    spec = tiny.manifest()["observation"]
    seq = sequential(observation={**spec, "state": None})
    seq.warm_up()
    seen = replace(observation(), state=np.zeros((2, 0), np.float32), position=np.zeros(0))
    assert chunk(seq, seen).reference is None


def test_the_plan_chooses_the_sampler() -> None:
    a, b = (chunk(sequential(plan=plan), observation()) for plan in ("quick", "fine"))
    assert (a.provenance.plan, b.provenance.plan) == ("quick", "fine")
    assert np.abs(a.actions - b.actions).max() > 1e-3


def test_load_gives_a_warm_executor_of_the_folder(tmp_path: Path) -> None:
    tiny.write(tmp_path)
    threads = torch.get_num_threads()
    try:
        seq = load_pipeline(tmp_path, Plan("fine"), PipelineSettings(3, "h", "s"), VirtualClock())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    assert seq.executor.frames == 0
    source = chunk(seq, observation()).provenance
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
        load_pipeline(tmp_path, Plan(plan), PipelineSettings(), VirtualClock())


def test_a_plan_whose_chunks_come_too_late_is_refused(tmp_path: Path) -> None:
    """Rule 9 of docs/pipeline.md: the period alone says so; 3 frames of 10 s are more than any horizon here."""
    tiny.write(tmp_path)
    with pytest.raises(PlanError, match=r"3 frames \(L \+ 2\) of 10000.0 ms outlast the horizon"):
        load_pipeline(tmp_path, Plan(frame_period_ms=10_000.0), PipelineSettings(), VirtualClock())


@pytest.mark.parametrize(
    "plan", ["fine,mode=auras,fetch_offset=-1,frame_period_ms=10000", "fine,mode=auras,pp_generation=60"]
)
def test_what_is_refused_leaves_no_lane_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    """Guards against a thread, and the policy that it holds, for each try of a supervisor that tries again for ever."""
    tiny.write(tmp_path)
    devices = []

    def made(kind: str) -> Device:
        devices.append(make_device(kind))
        return devices[-1]

    monkeypatch.setattr("auras_ros.loading.pipeline.make_device", made)
    before = set(threading.enumerate())
    with pytest.raises(PlanError):
        load_pipeline(tmp_path, Plan.parse(plan), PipelineSettings(), VirtualClock())
    assert set(threading.enumerate()) <= before
    with pytest.raises(DeviceError):
        devices[0].lane("another")


def test_a_policy_that_fails_in_warm_up_leaves_no_lane_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    pipeline = sequential(plan="fine")
    separate = pipeline.beside(Plan.parse("fine,mode=auras,fetch_offset=-1"))
    assert set(threading.enumerate()) > before
    monkeypatch.setattr(separate.executor.workers[0], "begin", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        separate.warm_up()
    assert set(threading.enumerate()) <= before


def test_a_machine_that_was_busy_for_a_moment_is_measured_again(tmp_path: Path) -> None:
    """Guards against a single slow warm-up that refuses a plan. The best measure counts, and stays."""
    tiny.write(tmp_path)
    pipeline = load_pipeline(tmp_path, Plan(), PipelineSettings(), VirtualClock())
    quick_ns, slow_ns = 1_000_000, pipeline.checkpoint.horizon * pipeline.checkpoint.contract.dt_ns
    measured = iter([slow_ns, 2 * slow_ns, quick_ns, slow_ns])

    pipeline.executor._warm_up = lambda runs: next(measured)  # type: ignore[method-assign]
    pipeline.executor.frame_ns = 0
    pipeline.warm_up()
    assert pipeline.executor.frame_ns == quick_ns
    pipeline.warm_up()
    assert pipeline.executor.frame_ns == quick_ns


def test_a_machine_that_stays_too_slow_is_refused_as_that() -> None:
    measured: list[bool] = []

    def check() -> None:
        raise TooSlowError("too slow")

    with pytest.raises(TooSlowError):
        at_best(check, lambda: measured.append(True))
    assert len(measured) == MEASURES - 1


def test_a_plan_that_is_not_named_is_the_checkpoints_first_and_provenance_names_it() -> None:
    """A converted checkpoint calls its plans as it likes: the agent's default must run it (and the four robot configs,
    which name no plan)."""
    plans = {"euler8": {"sampler": "ddim", "steps": 8}, "quick": {"sampler": "ddim", "steps": 4}}
    made = Pipeline(tiny.checkpoint(plans=plans), AgentSettings().plans()[0], PipelineSettings(5), Ticking(START_NS))
    named = Pipeline(tiny.checkpoint(plans=plans), Plan("euler8"), PipelineSettings(5), Ticking(START_NS))
    (one, said), (other, _) = run(made, observation()), run(named, observation())
    assert said.provenance.plan == str(made.plan) == "euler8"
    assert torch.equal(one.actions, other.actions)
    assert made.beside(Plan(mode="dec")).plan == Plan("euler8", mode="dec")
