"""Nova's plan, and what it is compared with.

Guards: another plan than the paper's; Nova with fewer or more settings than its baselines have; a baseline with less of
the device than its own; Multi-Stream with more work done at once than the profile says.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import (
    BASELINES,
    PAPER_SETTINGS,
    Contender,
    DeviceSetup,
    baselines,
    contended,
    family_of,
    multi_stream,
)

SETUP = DeviceSetup(a6000.profile(), a6000.TBT_BOUND_MS)


def test_the_plan_of_the_papers_device_is_the_papers() -> None:
    plan = SETUP.plan()
    assert (plan.least, plan.by_vision, plan.by_prefill) == (a6000.S_MIN, a6000.BY_VISION, a6000.BY_PREFILL)
    assert (plan.beta_vision, plan.beta_prefill) == (a6000.BETA_VISION, a6000.BETA_PREFILL)


def test_a_bound_that_no_split_keeps_is_named() -> None:
    with pytest.raises(ValueError, match="with no split a decode takes 20 ms or less beside another stage"):
        DeviceSetup(SETUP.profile, 20.0).plan()


def test_nova_is_tried_with_as_many_settings_as_the_baselines_together() -> None:
    family = family_of("nova", SETUP)
    plans = [SETUP.plan(each.setting) for each in family]
    assert family[0] == Contender("nova")
    assert len({*plans}) == len({each.name for each in family}) == len(baselines(SETUP, ranged=True)) == 17
    assert {plan.least for plan in plans} == {4, 6, 8, 10, 12, 14, 16}
    assert {(plan.by_vision, plan.by_prefill) for plan in plans} == {(a6000.BY_VISION, a6000.BY_PREFILL)}
    assert family_of("marginal", SETUP) == [Contender("marginal")]


def test_a_setting_is_steps_or_a_bound_or_both() -> None:
    plan = SETUP.plan()
    assert SETUP.plan((8, 7)) == replace(plan, beta_vision=8, beta_prefill=7)
    assert SETUP.plan((120,)) == DeviceSetup(SETUP.profile, 120).plan() != plan
    assert SETUP.plan((8, 7, 120)) == replace(SETUP.plan((120,)), beta_vision=8, beta_prefill=7)


def test_bounds_that_no_split_keeps_and_steps_of_another_device_are_not_tried() -> None:
    tight = family_of("nova", replace(SETUP, tbt_ms=40.0))
    assert min(each.setting[-1] for each in tight if len(each.setting) % 2) == 50
    other = replace(SETUP, profile=replace(SETUP.profile, units=100))
    assert {len(each.setting) for each in family_of("nova", other)} == {0, 1}


def test_the_papers_settings_are_among_those_that_are_tried() -> None:
    tried = baselines(SETUP, ranged=True)
    assert {*PAPER_SETTINGS} < {*tried}
    assert {each.family for each in tried} == {*BASELINES}
    assert len({each.name for each in tried}) == len(tried)
    short = replace(SETUP.profile, prompt=96)
    chunks = [
        each.setting for each in baselines(DeviceSetup(replace(short), 80.0), ranged=False) if each.family == "chunk"
    ]
    assert chunks == [(64,)]


def test_without_a_range_multi_stream_is_the_profiles() -> None:
    own = [each for each in baselines(SETUP, ranged=False) if each.family == "multi-stream"]
    assert own == [Contender("multi-stream")]
    assert own[0].profile(SETUP) is SETUP.profile


@pytest.mark.parametrize("setting", multi_stream(SETUP.profile)[1:])
def test_multi_streams_range_divides_the_work_of_table_iv_otherwise(setting: tuple[float]) -> None:
    """Together the kernels ran 1.068 times as fast as alone."""
    profile = contended(SETUP.profile, setting[0])
    assert profile.shared.decode_by_vision == profile.shared.decode_by_prefill == setting[0] * profile.decode
    for stage, alone in (("vision", profile.vision), ("prefill", profile.prefill[profile.prompt])):
        work = alone / getattr(profile.shared, stage) + 1 / setting[0]
        assert work == pytest.approx((588.3 + 699.8 - (1241.8 - 680.6)) / 680.6)
    assert replace(profile, shared=SETUP.profile.shared) == SETUP.profile


def test_the_range_is_around_the_profiles_slowdown() -> None:
    slowdown = SETUP.profile.shared.decode_by_vision / SETUP.profile.decode
    low, high = (setting[0] for setting in multi_stream(SETUP.profile)[1:])
    assert low == 2.0 < slowdown
    assert high == pytest.approx(1.5 * slowdown)
