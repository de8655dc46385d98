"""What users of such runtimes complain about, where no room's own tests show it: from the observation to the command.

The others' tests are named in docs/reliability.md. Guards: a chunk begun where an estimate says and not where the robot
is; a prefix held to another time than its own; a mode, or a way over topics, on which the policy sees something else; a
frame that does what warm-up has not done before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

from auras_ros.action import Chunk
from auras_ros.clock import VirtualClock
from auras_ros.evaluate import lockstep
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import EpisodeRunner, Task
from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import Timing, play
from auras_ros.evaluate.paused import Paused
from auras_ros.loading.pipeline import Pipeline, PipelineSettings, to_latched
from auras_ros.observation import Assembler, decode_raw
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.flow import FlowState
from auras_ros.ros.image import image_message, stamp_ns
from auras_ros.sim.pusht.world import PushTWorld
from tests.evaluate.tables import DT, MS, Tables, tiny_checkpoint
from tests.policies.tiny_flow import CENTER, noise_of, tiny_flow

START = DT
PLANS = (
    "quick",
    "quick,mode=dec",
    "quick,mode=par,concurrency=2",
    "quick,mode=auras,pp_generation=3",
    "quick,mode=auras,pp_generation=2,fetch_offset=-1",
)
GUIDED = tuple(f"{plan},guide={guide}" for guide in ("inpaint", "rtc") for plan in PLANS if "par" not in plan)


@dataclass
class Offers:
    """Every chunk that an episode was offered, with when."""

    found: list[tuple[int, Chunk]] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Offers:
        offer = EpisodeRunner.offer

        def noted(episode_runner: EpisodeRunner, chunk: Chunk, now_ns: int) -> None:
            self.found.append((now_ns, chunk))
            offer(episode_runner, chunk, now_ns)

        monkeypatch.setattr(EpisodeRunner, "offer", noted)
        return self


@pytest.mark.parametrize("plan", PLANS + GUIDED[:4])
def test_a_chunk_is_begun_where_the_robot_is_and_not_where_an_estimate_says(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames take between a tenth and twice of what is usual, so that no estimate holds; and yet every command is what
    the newest chunk says for that very step, counted from what the chunk saw."""
    tables, offers = Tables(monkeypatch), Offers().install(monkeypatch)
    durations = dict.fromkeys(("seq", "auras", "par", "dec/generate"), 150 * MS) | {"dec/perceive": 20 * MS}
    play(tiny_checkpoint(), Plan.parse(plan), [3], Task(max_steps=24), Charged(durations, 0.9, 1))
    begun = []
    for step, told in enumerate(tables.take()[3].actions):
        there = [chunk for at_ns, chunk in offers.found if at_ns <= START + step * DT]
        if not there:
            continue
        newest = max(there, key=lambda each: (each.provenance.origin_mono_ns, each.provenance.request))
        index = (START + step * DT - newest.provenance.origin_mono_ns) // DT
        if index < newest.horizon:
            np.testing.assert_array_equal(told, newest.actions[index])
            begun.append((newest.provenance.request, index))
    first = dict(reversed(begun))
    assert len(set(first.values())) >= 2


@pytest.mark.parametrize("plan", GUIDED[:5])
def test_what_a_new_chunk_is_frozen_to_is_what_was_executed_while_it_was_made(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says for the steps between its observation and its coming, the world was told by the chunk before."""
    tables, offers = Tables(monkeypatch), Offers().install(monkeypatch)
    durations = dict.fromkeys(("seq", "auras", "dec/generate"), 200 * MS) | {"dec/perceive": 20 * MS}
    play(tiny_checkpoint(), Plan.parse(plan), [3], Task(max_steps=20), Charged(durations))
    told, compared = tables.take()[3].actions, 0
    settled = Plan.parse(plan).latency_frames + 1  # from then on there was something to go on from in all its frames
    for at_ns, chunk in offers.found[settled:]:
        first = (chunk.provenance.origin_mono_ns - START) // DT
        executed = told[first : -(-(at_ns - START) // DT)]
        np.testing.assert_allclose(chunk.actions[: len(executed)], executed, rtol=0, atol=0.05)
        compared += len(executed)
    assert compared >= 6


# -- what the policy sees ------------------------------------------------------------------------------------


STEPS = 10


@pytest.fixture
def going_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables on which the pusher goes round whatever it is told: all modes are shown the same world."""
    step, steps = PushTWorld.step, WeakKeyDictionary[PushTWorld, int]()

    def led(world: PushTWorld, action: Any) -> Any:
        angle = 0.7 * steps.setdefault(world, 0)
        steps[world] += 1
        return step(world, np.array([256 + 150 * np.cos(angle), 256 + 150 * np.sin(angle)]))

    monkeypatch.setattr(PushTWorld, "step", led)


def shown(checkpoint: Checkpoint, plan: str, timing: Timing, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """What perception was given, with the control step in which it began."""
    found: list[tuple[int, Any]] = []
    clocks: list[VirtualClock] = []
    perceive = DiffusionPolicy.perceive

    def noted(policy: DiffusionPolicy, images: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        found.append(((clocks[-1].now_ns() - START) // DT, (images.clone(), state.clone())))
        return perceive(policy, images, state)

    def made(context: RunContext) -> Any:
        clocks.append(context.clock)
        executor = make_executor(context)
        found.clear()  # what it was shown while it was made, for the shapes alone
        return executor

    with monkeypatch.context() as patch:
        patch.setattr(lockstep, "make_executor", made)
        patch.setattr(DiffusionPolicy, "perceive", noted)
        play(checkpoint, Plan.parse(plan), [3], Task(max_steps=STEPS), timing)
    return found


@pytest.mark.usefixtures("going_its_way")
@pytest.mark.parametrize("plan", PLANS)
def test_an_asynchronous_mode_shows_the_policy_what_the_synchronous_one_shows_it(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """seq with the world waiting for it is the reference, step by step, bit for bit."""
    checkpoint = tiny_checkpoint()
    reference = dict(shown(checkpoint, "quick", Paused(1), monkeypatch))
    assert len(reference) == STEPS
    durations = dict.fromkeys(("seq", "auras", "par", "dec/generate"), 130 * MS) | {"dec/perceive": 40 * MS}
    others = shown(checkpoint, plan, Charged(durations, 0.5, 2), monkeypatch)
    seen = {step for step, (images, _) in others if images.std() > 0}
    assert len(seen) >= STEPS // 2
    for step, (images, state) in others:
        if step in seen:
            assert torch.equal(images, reference[step][0]), step
            assert torch.equal(state, reference[step][1]), step


@pytest.mark.usefixtures("going_its_way")
def test_what_comes_over_topics_is_preprocessed_as_in_lockstep() -> None:
    """The agent's way, from the message to the executor's input: joints in another order among others, images as bytes.
    Bit for bit what lockstep gives the executor."""
    checkpoint = tiny_checkpoint()
    episode_runners, world = EpisodeRunners(checkpoint, Task(), [3], False, START), Task().world()
    assembler = Assembler(checkpoint.spec, 300.0, 300.0, 0.0)
    world.reset(3)
    for step in range(4):
        now_ns = START + step * DT
        episode_runners.observe(now_ns, now_ns)
        side = checkpoint.spec.cameras[0].height
        message = image_message(world.image("top", side, side), stamp_ns=now_ns, frame_id="camera", encoding="rgb8")
        pixels = decode_raw(
            height=message.height, width=message.width, encoding=message.encoding, step=message.step, data=message.data
        )
        x, y = world.state().values()
        names, positions = ("gripper", "agent_y", "agent_x"), np.array([7.0, y, x])
        assert assembler.put_state(names, positions, now_ns, now_ns) is None
        assert assembler.put_image("top", pixels, stamp_ns(message.header.stamp), now_ns) is None
        over_topics: Any = assembler.latch(now_ns)
        mine, lockstep_s = to_latched(over_topics, checkpoint), episode_runners.seen(now_ns)
        assert torch.equal(mine.images, lockstep_s.images)
        assert torch.equal(mine.state, lockstep_s.state)
        np.testing.assert_array_equal(mine.origin.reference, lockstep_s.origin.reference)
        episode_runners.tick(now_ns)
        world.step(np.zeros(2))


# -- padding -------------------------------------------------------------------------------------------------


def test_what_the_network_has_beyond_the_robots_channels_never_reaches_the_robot() -> None:
    policy, sample = tiny_flow(), noise_of(2)
    channels = len(CENTER)
    assert sample.shape[2] > channels
    spoiled = sample.clone()
    spoiled[..., channels:] = torch.nan
    actions = policy.finish(FlowState(spoiled))
    assert actions.shape == (2, sample.shape[1], channels)
    assert torch.equal(actions, policy.finish(FlowState(sample)))


# -- first calls ---------------------------------------------------------------------------------------------


METHODS = ("perceive", "begin", "step", "finish", "predict", "clean", "advance")


@pytest.mark.parametrize("plan", PLANS + GUIDED)
def test_no_frame_calls_the_policy_as_warm_up_has_not(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first call with other shapes is what compiles, captures or allocates: the spike after activation."""
    called: set[Any] = set()
    for name in METHODS:
        monkeypatch.setattr(DiffusionPolicy, name, noting(name, getattr(DiffusionPolicy, name), called))
    checkpoint, clock = tiny_checkpoint(), VirtualClock()
    pipeline = Pipeline(checkpoint, Plan.parse(plan), PipelineSettings(), clock)
    pipeline.warm_up()
    warm = set(called)
    called.clear()
    episode_runners = EpisodeRunners(checkpoint, Task(), [3], False, START)
    for step in range(12):
        now_ns = START + step * DT
        episode_runners.observe(now_ns, now_ns)
        seen = episode_runners.seen(now_ns)
        for worker in pipeline.executor.workers:
            if worker.wants(seen, now_ns):
                worker.begin(seen, now_ns)
                worker.run()
                worker.end(now_ns + 50 * MS)
        episode_runners.tick(now_ns)
    pipeline.executor.close()
    assert {name for name, *_ in called} >= {"perceive", "begin", "finish"}
    assert called <= warm, called - warm


def noting(name: str, method: Any, called: set[Any]) -> Any:
    def noted(policy: Any, *given: Any, **rest: Any) -> Any:
        called.add((name, *(form(each) for each in (*given, *rest.values()))))
        return method(policy, *given, **rest)

    return noted


def form(value: Any) -> Any:
    """What a call's compilation depends on: shapes and types, not numbers."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    return tuple(form(each) for each in value) if isinstance(value, tuple) else type(value)
