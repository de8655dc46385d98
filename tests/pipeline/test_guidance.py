"""What guided chunks go on from: aligned as the actuator aligns, frozen for as long as it takes, padding left alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import (
    ActionStream,
    ActionStreamOptions,
    Channel,
    ChannelKind,
    Chunk,
    Contract,
    HoldPolicy,
    Interpolation,
    Provenance,
)
from auras_ros.pipeline.continuity import REMEMBERED_FRAMES, Aim, GuidedContinuity, weights
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
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
    seen = ObservationOrigin(origin_ns, origin_ns, **origin)
    return Emission(
        torch.from_numpy(values.copy()), 0, 0, epoch, (seen,), (origin_ns,), origin_ns, origin_ns, origin_ns
    )


def after(emission: Emission, contract: Contract = PLAIN, took_ns: int = 0) -> GuidedContinuity:
    """One request that took so long has ended in this chunk."""
    continuity = GuidedContinuity(contract)
    continuity.began(emission.epoch, 0)
    continuity.ended(emission, took_ns)
    continuity.began(emission.epoch, took_ns)
    return continuity


def aimed(continuity: GuidedContinuity, origin: ObservationOrigin, now_ns: int | None = None) -> Aim:
    aim = continuity.aim(origin, origin.mono_ns if now_ns is None else now_ns)
    assert aim is not None
    return aim


# -- which actions --------------------------------------------------------------------------------------


@given(moved_ms=st.integers(0, (HORIZON - 1) * DT_MS), start_ms=st.integers(0, 5 * DT_MS))
def test_the_target_is_what_the_actuator_would_have_executed(moved_ms: int, start_ms: int) -> None:
    """Whatever lies between the two origins: the prefix is not off by one, nor rounded to the nearest step."""
    emission, tick_ns = emitted(start_ms * MS), MS
    origin = ObservationOrigin(0, (start_ms + moved_ms) * MS)
    aim = aimed(after(emission), origin)
    stream = ActionStream(PLAIN, ActionStreamOptions(tick_ns, max_chunk_age_ms=2.0 * HORIZON * DT_MS))
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
    aim = aimed(after(emitted(0)), ObservationOrigin(0, 5 * DT_NS), 5 * DT_NS)
    assert (aim.weight[0, : HORIZON - 5] > 0).all()
    assert not aim.weight[0, HORIZON - 5 :].any()
    assert not aim.target[0, HORIZON - 5 :].any()


def test_set_points_relative_to_the_origin_are_referred_to_the_new_one() -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_ORIGIN), channel("y")), DT_MS)
    before, now = np.array([[10.0, 20.0]]), np.array([[13.0, 27.0]])
    emission = emitted(0, reference=before)
    aim = aimed(after(emission, contract), ObservationOrigin(0, DT_NS, now))
    old = emission.actions[0].numpy()
    np.testing.assert_allclose(aim.target[0, :-1, 0] + 13.0, old[1:, 0] + 10.0)
    np.testing.assert_allclose(aim.target[0, :-1, 1], old[1:, 1])


@pytest.mark.parametrize("now", [None, np.array([[np.nan, 27.0]])])
def test_a_relative_channel_of_which_nobody_knows_where_it_is_stays_free(now: Any) -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_ORIGIN), channel("y")), DT_MS)
    emission = emitted(0, reference=np.array([[10.0, 20.0]]))
    aim = aimed(after(emission, contract), ObservationOrigin(0, DT_NS, now))
    assert not aim.weight[..., 0].any()
    assert aim.weight[..., 1].any()
    assert np.isfinite(aim.target).all()


def test_increments_and_switches_are_shifted_whole() -> None:
    contract = Contract((channel("x", ChannelKind.DELTA_PREVIOUS), channel("y", ChannelKind.GRIPPER)), DT_MS)
    emission = emitted(0)
    aim = aimed(after(emission, contract), ObservationOrigin(0, 150 * MS))
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
    aim = aimed(after(emitted(0), took_ns=took_ms * MS), ObservationOrigin(0, DT_NS))
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == frozen


def test_an_observation_that_was_old_when_the_frame_began_freezes_more() -> None:
    aim = aimed(after(emitted(0), took_ns=100 * MS), ObservationOrigin(0, DT_NS), DT_NS + 150 * MS)
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == 4


def test_the_longest_of_the_last_frames_counts_and_older_ones_do_not() -> None:
    continuity = after(emitted(0), took_ns=300 * MS)
    for _ in range(REMEMBERED_FRAMES - 1):
        continuity.began(0, 0)
        continuity.ended(None, 150 * MS)
    assert int((aimed(continuity, ObservationOrigin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 4
    continuity.began(0, 0)
    continuity.ended(None, 150 * MS)
    assert int((aimed(continuity, ObservationOrigin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 3


def test_frames_that_generate_nothing_say_nothing_of_how_long_one_takes() -> None:
    """With two stages of perception and a look ahead, two of three frames are over in no time: by their median the
    third would be believed to take no time either."""
    continuity = after(emitted(0), took_ns=300 * MS)
    for _ in range(2 * REMEMBERED_FRAMES):
        continuity.began(0, 0)
        continuity.ended(None, 1 * MS, generated=False)
    assert int((aimed(continuity, ObservationOrigin(0, DT_NS)).weight[0, :, 0] == 1.0).sum()) == 4


# -- from what nothing goes on --------------------------------------------------------------------------


def test_nothing_goes_on_from_a_chunk_that_is_not_there() -> None:
    continuity = GuidedContinuity(PLAIN)
    continuity.began(0, 0)
    assert continuity.aim(ObservationOrigin(0, 0), 0) is None


def test_nothing_goes_on_from_another_epoch_or_from_warm_up_nor_do_their_times() -> None:
    continuity = after(emitted(0, epoch=-1), took_ns=60_000 * MS)
    continuity.began(0, 0)
    assert continuity.aim(ObservationOrigin(0, DT_NS), DT_NS) is None
    continuity.ended(emitted(0), 10 * MS)
    continuity.began(0, DT_NS)
    aim = aimed(continuity, ObservationOrigin(0, DT_NS))
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == 2  # 60 s would freeze all


def test_a_chunk_of_an_epoch_that_is_over_is_not_gone_on_from() -> None:
    continuity = GuidedContinuity(PLAIN)
    continuity.began(1, 0)
    continuity.ended(emitted(0, epoch=0), 0)
    assert continuity.aim(ObservationOrigin(0, DT_NS), DT_NS) is None


def test_nothing_goes_on_from_a_chunk_that_was_cut_off_is_used_up_or_is_not_finite() -> None:
    continuity = after(emitted(0))
    assert continuity.aim(ObservationOrigin(0, HORIZON * DT_NS), HORIZON * DT_NS) is None
    continuity.cut()
    assert continuity.aim(ObservationOrigin(0, DT_NS), DT_NS) is None
    spoilt = np.zeros((1, HORIZON, 2))
    spoilt[0, 5, 1] = np.nan
    assert after(emitted(0, spoilt)).aim(ObservationOrigin(0, DT_NS), DT_NS) is None


@pytest.mark.parametrize("value", [-1021.0, 1021.0])
def test_nothing_goes_on_from_a_chunk_that_the_actuator_refuses(value: float) -> None:
    """2 % of the range beyond a limit refuse a chunk: it holds, and its successors must not be led there too."""
    beyond = np.zeros((1, HORIZON, 2))
    beyond[0, 3, 0] = 2.0 * value
    assert after(emitted(0, beyond)).aim(ObservationOrigin(0, DT_NS), DT_NS) is None
    beyond[0, 3, 0] = value
    assert after(emitted(0, beyond)).aim(ObservationOrigin(0, DT_NS), DT_NS) is not None  # a little beyond is clipped


def test_a_good_chunk_before_a_refused_one_is_not_gone_on_from_either() -> None:
    continuity = after(emitted(0))
    continuity.ended(emitted(0, np.full((1, HORIZON, 2), 1e6)), 0)
    assert continuity.aim(ObservationOrigin(0, DT_NS), DT_NS) is None


def test_an_observation_older_than_the_chunk_s_goes_on_from_nothing() -> None:
    """A clock that is set forward puts the next origin before the old one."""
    continuity = after(emitted(5 * DT_NS))
    assert continuity.aim(ObservationOrigin(0, 5 * DT_NS - 1), 6 * DT_NS) is None
    assert continuity.aim(ObservationOrigin(0, 5 * DT_NS), 6 * DT_NS) is not None


def test_one_slow_frame_does_not_freeze_what_the_others_need_not() -> None:
    continuity = GuidedContinuity(PLAIN)
    for took_ns in (50 * MS, 50 * MS, 50 * MS, 700 * MS):
        continuity.began(0, 0)
        continuity.ended(emitted(0), took_ns)
    continuity.began(0, 0)
    aim = aimed(continuity, ObservationOrigin(0, DT_NS))
    assert int((aim.weight[0, :, 0] == 1.0).sum()) == 2  # 2 medians, and under way


# -- plans ----------------------------------------------------------------------------------------------


def test_plans_that_cannot_be_guided_are_refused_by_name() -> None:
    def noise(_: int) -> torch.Tensor:
        return torch.zeros(1)

    like = Latched(*tiny.observed(1), ObservationOrigin(0, 0))
    with pytest.raises(PlanError, match="guide: has no meaning in mode par"):
        Plan(mode="par", concurrency=2, guide="rtc")
    with pytest.raises(PlanError, match="guide: must be one of none, inpaint, rtc"):
        Plan(guide="blend")
    for policy in (RecordingPolicy(4), tiny_autoregressive.tiny_autoregressive()):
        with pytest.raises(PlanError, match="guide: 'rtc' has no meaning for a policy that does not denoise"):
            make_executor(RunContext(policy, Plan(guide="rtc"), noise, like, contract=PLAIN))
    with pytest.raises(PlanError, match="guide: 'inpaint' needs the channel contract"):
        make_executor(RunContext(tiny.policy(), Plan(guide="inpaint"), noise, like))


def test_the_guide_is_kept_in_other_modes_but_not_in_par() -> None:
    plan = Plan.parse("quick,mode=auras,pp_generation=2,guide=rtc")
    assert plan.as_mode("seq").guide == "rtc"
    assert plan.as_mode("par", 2).guide == "none"
