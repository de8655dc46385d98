"""What guided chunks go on from: aligned as the actuator aligns, frozen for as long as it takes, padding left alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import ActionStream, Channel, ChannelKind, Chunk, Contract, HoldPolicy, Interpolation, Provenance
from auras_ros.clock import VirtualClock
from auras_ros.device import make_device
from auras_ros.pipeline.continuity import REMEMBERED_FRAMES, Aim, Continuity, weights
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Emission, Latched, Origin
from auras_ros.policies.noise import noise_tape
from tests.pipeline.recording import RecordingPolicy
from tests.policies import tiny, tiny_autoregressive

MS, DT_MS, HORIZON = 1_000_000, 100, 8
DT_NS = DT_MS * MS


def channel(name: str, kind: ChannelKind = ChannelKind.ABSOLUTE, linear: bool = False) -> Channel:
    moving = kind in (ChannelKind.VELOCITY, ChannelKind.DELTA_PREVIOUS)
    hold = HoldPolicy.ZERO if moving else HoldPolicy.LAST
    between = Interpolation.LINEAR if linear else Interpolation.STEP
    return Channel(name, "m", kind, -1000.0, 1000.0, hold=hold, interpolation=between)


PLAIN = Contract((channel("x"), channel("y", linear=True)), DT_MS)


def emitted(origin_ns: int, actions: np.ndarray[Any, Any] | None = None, epoch: int = 0, **origin: Any) -> Emission:
    values = np.random.default_rng(0).normal(size=(1, HORIZON, 2)) if actions is None else actions
    seen = Origin(origin_ns, origin_ns, **origin)
    return Emission(
        torch.from_numpy(values.copy()), 0, 0, epoch, (seen,), (origin_ns,), origin_ns, origin_ns, origin_ns
    )


def after(emission: Emission, contract: Contract = PLAIN, took_ns: int = 0) -> Continuity:
    """One request that took so long has ended in this chunk."""
    continuity = Continuity("rtc", contract)
    continuity.began(emission.epoch, 0)
    continuity.ended(emission, took_ns)
    continuity.began(emission.epoch, took_ns)
    return continuity


def aimed(continuity: Continuity, origin: Origin, now_ns: int | None = None) -> Aim:
    aim = continuity.aim(origin, origin.mono_ns if now_ns is None else now_ns)
    assert aim is not None
    return aim


# -- which actions --------------------------------------------------------------------------------------


@given(moved_ms=st.integers(0, (HORIZON - 1) * DT_MS), start_ms=st.integers(0, 5 * DT_MS))
def test_the_target_is_what_the_actuator_would_have_executed(moved_ms: int, start_ms: int) -> None:
    """Whatever lies between the two origins: the prefix is not off by one, nor rounded to the nearest step."""
    emission, tick_ns = emitted(start_ms * MS), MS
    origin = Origin(0, (start_ms + moved_ms) * MS)
    aim = aimed(after(emission), origin)
    stream = ActionStream(PLAIN, tick_ns, max_chunk_age_ms=2.0 * HORIZON * DT_MS)
    assert stream.arm(start_ms * MS).ok
    assert stream.offer(Chunk(emission.actions[0].numpy(), Provenance(start_ms * MS, start_ms * MS)), start_ms * MS).ok
    if moved_ms:
        stream.tick(start_ms * MS)
    overlap = int(np.count_nonzero(aim.weight[0, :, 0]))
    assert overlap == HORIZON - math.ceil(moved_ms / DT_MS)
    for step in range(overlap):
        command = stream.tick(origin.mono_ns + step * DT_NS)
        np.testing.assert_allclose(aim.target[0, step], command.values, rtol=0, atol=1e-9)


def test_what_the_old_chunk_does_not_reach_is_padding_and_guides_nothing() -> None:
    aim = aimed(after(emitted(0)), Origin(0, 5 * DT_NS), 5 * DT_NS)
    assert (aim.weight[0, : HORIZON - 5] > 0).all()
    assert not aim.weight[0, HORIZON - 5 :].any()
    assert not aim.target[0, HORIZON - 5 :].any()


def test_set_points_relative_to_the_origin_are_referred_to_the_new_one() -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_ORIGIN), channel("y")), DT_MS)
    before, now = np.array([[10.0, 20.0]]), np.array([[13.0, 27.0]])
    emission = emitted(0, reference=before)
    aim = aimed(after(emission, contract), Origin(0, DT_NS, now))
    old = emission.actions[0].numpy()
    np.testing.assert_allclose(aim.target[0, :-1, 0] + 13.0, old[1:, 0] + 10.0)
    np.testing.assert_allclose(aim.target[0, :-1, 1], old[1:, 1])


@pytest.mark.parametrize("now", [None, np.array([[np.nan, 27.0]])])
def test_a_relative_channel_of_which_nobody_knows_where_it_is_stays_free(now: Any) -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_ORIGIN), channel("y")), DT_MS)
    emission = emitted(0, reference=np.array([[10.0, 20.0]]))
    aim = aimed(after(emission, contract), Origin(0, DT_NS, now))
    assert not aim.weight[..., 0].any()
    assert aim.weight[..., 1].any()
    assert np.isfinite(aim.target).all()


def test_increments_and_switches_are_shifted_whole() -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_PREVIOUS), channel("y", ChannelKind.GRIPPER)), DT_MS)
    emission = emitted(0)
    aim = aimed(after(emission, contract), Origin(0, 150 * MS))
    np.testing.assert_array_equal(aim.target[0, : HORIZON - 2], emission.actions[0, 2:].numpy())


# -- how far they are certain ---------------------------------------------------------------------------


def test_the_weights_are_the_published_ones() -> None:
    """Black et al. 2025, eq. 5, worked out by hand: 2 frozen, 5 in common, a horizon of 8."""
    found = weights(2, 5, 8)
    shares = [3 / 4, 2 / 4, 1 / 4]
    expected = [1, 1, *[c * (math.e**c - 1) / (math.e - 1) for c in shares], 0, 0, 0]
    np.testing.assert_allclose(found, expected)
    np.testing.assert_array_equal(weights(9, 5, 8), [1, 1, 1, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(weights(0, 0, 4), [0, 0, 0, 0])


@pytest.mark.parametrize(("took_ms", "frozen"), [(0, 1), (1, 2), (100, 2), (101, 3), (250, 4)])
def test_what_is_executed_until_the_chunk_comes_is_frozen_and_what_is_under_way_then(took_ms: int, frozen: int) -> None:
    aim = aimed(after(emitted(0), took_ns=took_ms * MS), Origin(0, DT_NS))
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == frozen


def test_an_observation_that_was_old_when_the_frame_began_freezes_more() -> None:
    aim = aimed(after(emitted(0), took_ns=100 * MS), Origin(0, DT_NS), DT_NS + 150 * MS)
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == 4


def test_the_longest_of_the_last_frames_counts_and_older_ones_do_not() -> None:
    continuity = after(emitted(0), took_ns=300 * MS)
    for _ in range(REMEMBERED_FRAMES - 1):
        continuity.began(0, 0)
        continuity.ended(None, 150 * MS)
    assert int((aimed(continuity, Origin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 4
    continuity.began(0, 0)
    continuity.ended(None, 150 * MS)
    assert int((aimed(continuity, Origin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 3


# -- from what nothing goes on --------------------------------------------------------------------------


def test_nothing_goes_on_from_a_chunk_that_is_not_there() -> None:
    continuity = Continuity("rtc", PLAIN)
    continuity.began(0, 0)
    assert continuity.aim(Origin(0, 0), 0) is None


def test_nothing_goes_on_from_another_epoch_or_from_warm_up_nor_do_their_times() -> None:
    continuity = after(emitted(0, epoch=-1), took_ns=60_000 * MS)
    continuity.began(0, 0)
    assert continuity.aim(Origin(0, DT_NS), DT_NS) is None
    continuity.ended(emitted(0), 10 * MS)
    continuity.began(0, DT_NS)
    assert int((aimed(continuity, Origin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 2  # 60 s would freeze all


def test_a_chunk_of_an_epoch_that_is_over_is_not_gone_on_from() -> None:
    continuity = Continuity("rtc", PLAIN)
    continuity.began(1, 0)
    continuity.ended(emitted(0, epoch=0), 0)
    assert continuity.aim(Origin(0, DT_NS), DT_NS) is None


def test_nothing_goes_on_from_a_chunk_that_was_cut_off_is_used_up_or_is_not_finite() -> None:
    continuity = after(emitted(0))
    assert continuity.aim(Origin(0, HORIZON * DT_NS), HORIZON * DT_NS) is None
    continuity.cut()
    assert continuity.aim(Origin(0, DT_NS), DT_NS) is None
    spoilt = np.zeros((1, HORIZON, 2))
    spoilt[0, 5, 1] = np.nan
    assert after(emitted(0, spoilt)).aim(Origin(0, DT_NS), DT_NS) is None


@pytest.mark.parametrize("value", [-1021.0, 1021.0])
def test_nothing_goes_on_from_a_chunk_that_the_actuator_refuses(value: float) -> None:
    """2 % of the range beyond a limit refuse a chunk: it holds, and its successors must not be led there too."""
    beyond = np.zeros((1, HORIZON, 2))
    beyond[0, 3, 0] = 2.0 * value
    assert after(emitted(0, beyond)).aim(Origin(0, DT_NS), DT_NS) is None
    beyond[0, 3, 0] = value
    assert after(emitted(0, beyond)).aim(Origin(0, DT_NS), DT_NS) is not None  # a little beyond is clipped


def test_a_good_chunk_before_a_refused_one_is_not_gone_on_from_either() -> None:
    continuity = after(emitted(0))
    continuity.ended(emitted(0, np.full((1, HORIZON, 2), 1e6)), 0)
    assert continuity.aim(Origin(0, DT_NS), DT_NS) is None


def test_an_observation_older_than_the_chunk_s_goes_on_from_nothing() -> None:
    """A clock that is set forward puts the next origin before the old one."""
    continuity = after(emitted(5 * DT_NS))
    assert continuity.aim(Origin(0, 5 * DT_NS - 1), 6 * DT_NS) is None
    assert continuity.aim(Origin(0, 5 * DT_NS), 6 * DT_NS) is not None


def test_one_slow_frame_does_not_freeze_what_the_others_need_not() -> None:
    continuity = Continuity("rtc", PLAIN)
    for took_ns in (50 * MS, 50 * MS, 50 * MS, 700 * MS):
        continuity.began(0, 0)
        continuity.ended(emitted(0), took_ns)
    continuity.began(0, 0)
    assert int((aimed(continuity, Origin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 2  # 2 medians, and under way


# -- plans ----------------------------------------------------------------------------------------------


def test_plans_that_cannot_be_guided_are_refused_by_name() -> None:
    def noise(_: int) -> torch.Tensor:
        return torch.zeros(1)

    with pytest.raises(PlanError, match="guide: has no meaning in mode par"):
        Plan(mode="par", workers=2, guide="rtc")
    with pytest.raises(PlanError, match="guide: must be one of none, inpaint, rtc"):
        Plan(guide="blend")
    for policy in (RecordingPolicy(4), tiny_autoregressive.tiny_autoregressive()):
        with pytest.raises(PlanError, match="guide: 'rtc' has no meaning for a policy that does not denoise"):
            make_executor(policy, Plan(guide="rtc"), noise, VirtualClock(), contract=PLAIN)
    with pytest.raises(PlanError, match="guide: 'inpaint' needs the channels' contract"):
        make_executor(tiny.policy(), Plan(guide="inpaint"), noise, VirtualClock())


def test_the_guide_is_kept_in_other_modes_but_not_in_par() -> None:
    plan = Plan.parse("quick,mode=auras,pp_generation=2,guide=rtc")
    assert plan.as_mode("seq").guide == "rtc"
    assert plan.as_mode("par", 2).guide == "none"


# -- modes ----------------------------------------------------------------------------------------------

MODES = (
    "mode=seq",
    "mode=dec",
    "mode=auras",
    "mode=auras,pp_generation=4",
    "mode=auras,pp_generation=3,alpha=0.5",
    "mode=auras,pp_generation=4,fetch_offset=-1,pp_perception=2",
    "mode=auras,pp_generation=2,batched=false",
)
LOOK_NS = 2 * DT_NS  # between observations
TOOK_NS = 150 * MS  # a frame: two of the new chunk's steps are over when it is there


class Guided:
    """The tiny policy in a mode, driven by hand: one observation a frame, each frame takes TOOK_NS."""

    made: ClassVar[list[Executor]] = []

    def __init__(self, text: str, seeds: tuple[int, ...] = (3, 8), device: str = "cpu") -> None:
        policy = tiny.exact_policy(6)
        where = make_device(device)
        policy.to(where.tensors)
        self.seeds = list(seeds)
        contract = tiny.checkpoint().contract

        def noise(request: int) -> torch.Tensor:
            return torch.stack([noise_tape(policy.noise_shape, seed, request) for seed in self.seeds])

        self.run: Executor = make_executor(policy, Plan.parse(text), noise, VirtualClock(), where, contract=contract)
        self.made.append(self.run)
        self.environments = torch.arange(len(seeds))
        self.frame = 0

    def play(self, frames: int) -> list[Emission]:
        emissions: list[Emission] = []
        for _ in range(frames):
            now_ns = self.frame * LOOK_NS
            images, state = tiny.observed(3, self.frame + 1)
            rows = self.environments
            look = Latched(images[rows], state[rows], Origin(now_ns, now_ns))
            for strand in self.run.strands:
                strand.begin(look, now_ns)
                strand.run()
                emission = strand.end(now_ns + TOOK_NS)
                emissions += [] if emission is None else [emission]
            self.frame += 1
        return emissions

    def keep(self, rows: list[int]) -> None:
        self.environments = self.environments[rows]
        self.seeds = [self.seeds[row] for row in rows]
        self.run.keep(torch.tensor(rows))


@pytest.fixture(autouse=True)
def lanes_end() -> Iterator[None]:
    yield
    while Guided.made:
        Guided.made.pop().close()


def disagreement(emissions: list[Emission], step: int) -> float:
    """Root mean square, over neighbours, of how far a chunk is from the one before at its own step."""
    apart = []
    for old, new in pairwise(emissions):
        moved = (new.origin.mono_ns - old.origin.mono_ns) // DT_NS
        apart.append((new.actions[:, step] - old.actions[:, step + moved]).square().mean().item())
    return math.sqrt(sum(apart) / len(apart))


@pytest.mark.parametrize("guide", ["inpaint", "rtc"])
@pytest.mark.parametrize("mode", MODES)
def test_a_chunk_goes_on_from_the_one_before(mode: str, guide: str) -> None:
    """What is over when it comes is the old one's; and right after that it is nearer to it than an unguided one. (By
    gradient only where a network has learned how actions follow one another; this one has random weights.)"""
    guided = Guided(f"quick,{mode},guide={guide}").play(12)
    free = Guided(f"quick,{mode}").play(12)
    assert len(guided) == len(free) > 3
    assert torch.equal(guided[0].actions, free[0].actions)  # there was nothing to go on from
    late = 0 if "fetch_offset=-1" not in mode else LOOK_NS * 2 // DT_NS  # the context is two frames older
    frozen = math.ceil(TOOK_NS / DT_NS) + 1 + late
    for step in range(min(frozen, HORIZON - LOOK_NS // DT_NS)):
        assert disagreement(guided, step) < 1e-3 < disagreement(free, step)
    if guide == "inpaint" and frozen < HORIZON - LOOK_NS // DT_NS:
        assert disagreement(guided, frozen) < 0.8 * disagreement(free, frozen)


@pytest.mark.parametrize("mode", MODES)
def test_environments_stay_apart_and_some_may_go(mode: str) -> None:
    """Each row of a batch as if it were alone, before and after the others have left (lockstep)."""
    batch, alone = (Guided(f"quick,{mode},guide=inpaint", seeds) for seeds in ((3, 8, 5), (5,)))
    alone.environments = torch.tensor([2])
    filling = batch.run.plan.latency_frames
    before = batch.play(filling + 2)
    batch.keep([2, 0])
    rows = [(each, 2) for each in before] + [(each, 0) for each in batch.play(3)]
    assert len(rows) > 4
    for (emission, row), expected in zip(rows, alone.play(filling + 5), strict=True):
        torch.testing.assert_close(emission.actions[row], expected.actions[0], rtol=0, atol=0.5)  # px of 512


@pytest.mark.gpu
@pytest.mark.parametrize("guide", ["inpaint", "rtc"])
@pytest.mark.parametrize("mode", MODES)
def test_captured_on_a_gpu_it_goes_on_as_on_the_cpu(mode: str, guide: str) -> None:
    frames = 10
    here, there = (Guided(f"quick,{mode},guide={guide}", device=device).play(frames) for device in ("cpu", "cuda"))
    assert len(here) == len(there) > 2
    for one, other in zip(here[:3], there[:3], strict=True):
        torch.testing.assert_close(one.actions, other.actions, rtol=0, atol=1.0)  # px of 512


@pytest.mark.parametrize("mode", MODES)
def test_a_new_epoch_goes_on_from_nothing(mode: str) -> None:
    old, new = Guided(f"quick,{mode},guide=rtc"), Guided(f"quick,{mode},guide=rtc")
    old.play(7)
    old.run.reset(first_request=0)
    new.frame = old.frame
    for one, other in zip(old.play(8), new.play(8), strict=True):
        assert torch.equal(one.actions, other.actions)


def test_a_chunk_that_was_cut_off_is_not_gone_on_from() -> None:
    guided, free = Guided("quick,guide=rtc"), Guided("quick")
    for each in (guided, free):
        each.play(3)
    guided.run.continuity.cut()
    assert torch.equal(guided.play(1)[0].actions, free.play(1)[0].actions)


def test_a_latency_that_was_too_short_leaves_no_jump_where_nothing_held_it() -> None:
    """The estimate ends the freezing, nothing else: what comes later than it said is still held, only less."""
    guided, free = Guided("quick,guide=inpaint").play(12), Guided("quick").play(12)
    late = math.ceil(TOOK_NS / DT_NS) + 2  # the actuator has executed one step more than the estimate
    assert disagreement(guided, late) < disagreement(free, late)


def test_the_kept_emission_is_of_the_environments_that_stay() -> None:
    emission = emitted(0, np.arange(3 * HORIZON * 2, dtype=np.float64).reshape(3, HORIZON, 2))
    continuity = after(emission)
    continuity.keep(torch.tensor([2, 0]))
    aim = aimed(continuity, Origin(0, 0))
    np.testing.assert_array_equal(aim.target, emission.actions[[2, 0]].numpy())
    assert replace(emission, actions=emission.actions[:1]).keep(torch.tensor([0])).actions.shape[0] == 1
