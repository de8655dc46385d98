"""A robot description is hostile text until read; and it can only ever tighten a contract."""

from __future__ import annotations

import math
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Channel, Contract, ContractError, JointLimit, joint_limits, tighten
from auras_ros.action.urdf import MAX_CHARS, full_turns, unlimited

LIMIT = '<limit lower="-1.5" upper="2" velocity="3" effort="40"/>'


def robot(*joints: str, head: str = "") -> str:
    return f'{head}<robot name="r">{"".join(joints)}</robot>'


def joint(inside: str = LIMIT, *, name: str = "j", kind: str = "revolute") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="a"/><child link="b"/>{inside}</joint>'


def test_each_type_of_joint_says_what_it_has() -> None:
    found = joint_limits(
        robot(
            joint(name="turns"),
            joint('<limit velocity="1" effort="2"/>', name="zero"),
            joint('<limit lower="0" upper="0.04" velocity="0.2" effort="20"/>', name="slides", kind="prismatic"),
            joint("", name="wheel", kind="continuous"),
            joint('<limit lower="-1" upper="1" velocity="9" effort="1"/>', name="spins", kind="continuous"),
            joint("", name="bolted", kind="fixed"),
            joint("", name="flies", kind="floating"),
            head='<?xml version="1.0" encoding="utf-8"?>\n<!-- a robot -->',
        )
    )
    assert found == {
        "turns": JointLimit("revolute", -1.5, 2.0, 3.0, 40.0),
        "zero": JointLimit("revolute", 0.0, 0.0, 1.0, 2.0),
        "slides": JointLimit("prismatic", 0.0, 0.04, 0.2, 20.0),
        "wheel": JointLimit("continuous"),
        "spins": JointLimit("continuous", -math.inf, math.inf, 9.0, 1.0),
    }


def test_only_the_robots_own_joints_count() -> None:
    """ros2_control and transmissions name joints too, without types."""
    others = '<ros2_control><joint name="j"><limit velocity="x"/></joint></ros2_control>'
    assert set(joint_limits(robot(others, joint(), "<transmission><joint name='j'/></transmission>"))) == {"j"}


def test_a_mimic_says_whom_it_follows() -> None:
    found = joint_limits(robot(joint(), joint(LIMIT + '<mimic joint="j" multiplier="-1"/>', name="m")))
    assert (found["j"].mimics, found["m"].mimics) == ("", "j")


BILLION = '<!DOCTYPE r [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
HOSTILE = [
    (b"<robot/>", "expected text, got bytes"),
    (None, "expected text"),
    ("", "not XML"),
    ("not xml", "not XML"),
    ("<robot>", "not XML"),
    (robot() + "<more/>", "not XML"),
    (robot("\x00"), "not XML"),
    (robot(joint().replace("j", "\ud800")), "UTF-8"),
    (robot("&lol;"), "not XML"),
    (robot(head=BILLION), "DOCTYPE"),
    (robot("&b;", head=BILLION), "DOCTYPE"),
    (robot(head='<!DOCTYPE robot SYSTEM "file:///etc/passwd">'), "DOCTYPE"),
    (robot("<a>" * 65 + "</a>" * 65), "more than 64 deep"),
    ("<sdf/>", "expected <robot>"),
    (robot("x" * MAX_CHARS), "at most"),
    (robot(joint(name="")), "without a name"),
    (robot("<joint/>"), "without a name"),
    (robot(joint(kind="rotary")), "'j': type"),
    (robot(joint(), joint()), "'j': name: used more than once"),
    (robot(joint("")), "'j': limit: missing"),
    (robot(joint(LIMIT + LIMIT)), "'j': limit: given twice"),
    (robot(joint(LIMIT + "<mimic/>")), "'j': mimic joint: missing"),
    (robot(joint('<limit lower="3" upper="2" velocity="1" effort="1"/>')), "'j': limit: lower 3 is above upper 2"),
    (robot(joint('<limit lower="0" upper="1" effort="1"/>')), "'j': limit velocity: missing"),
    (robot(joint('<limit lower="0" upper="1" velocity="1"/>')), "'j': limit effort: missing"),
    (robot(joint('<limit velocity="-1" effort="1"/>')), "'j': limit velocity: -1 is below zero"),
]


@pytest.mark.parametrize(("text", "complaint"), HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_what_is_no_robot_description_is_refused_and_says_why(text: Any, complaint: str) -> None:
    with pytest.raises(ContractError, match="robot description") as caught:
        joint_limits(text)
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("field", ["lower", "upper", "velocity", "effort"])
@pytest.mark.parametrize("number", ["nan", "-NaN", "inf", "-inf", "1e999", "", "two", "1_0", "0x10", "1" * 65])
def test_every_number_of_a_joint_is_finite_and_plain(field: str, number: str) -> None:
    values = {"lower": "-1", "upper": "1", "velocity": "1", "effort": "1", field: number}
    limit = "<limit " + " ".join(f'{name}="{value}"' for name, value in values.items()) + "/>"
    with pytest.raises(ContractError, match=f"'j': limit {field}: .* is not a finite number"):
        joint_limits(robot(joint(limit)))


@given(st.text(max_size=300) | st.text(alphabet='<>/"=&;! robotjintlmew0.9-', max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for hostile in (text, robot(text), robot(joint(text))):
        with suppress(ContractError):
            joint_limits(hostile)


def one(make: SimpleNamespace, limit: JointLimit | None, **rules: Any) -> Channel:
    rules = {"name": "j", "unit": "rad", "max_rate": 10.0, **rules}
    tightened = tighten(make.contract(make.channel(**rules)), {} if limit is None else {"j": limit})
    return tightened.channels[0]


TURNS = JointLimit("revolute", -1.5, 2.0, 3.0, 40.0)


@pytest.mark.parametrize("kind", ["absolute", "delta_origin", "gripper"])
def test_a_set_point_takes_position_and_velocity(make: SimpleNamespace, kind: str) -> None:
    channel = one(make, TURNS, kind=kind)
    assert (channel.lower, channel.upper, channel.max_rate) == (-1.5, 2.0, 3.0)
    channel = one(make, TURNS, kind=kind, lower=-1.0, upper=1.0, max_rate=None)
    assert (channel.lower, channel.upper, channel.max_rate) == (-1.0, 1.0, 3.0)
    channel = one(make, TURNS, kind=kind, lower=-1.0, upper=9.0, max_rate=1.0)
    assert (channel.lower, channel.upper, channel.max_rate) == (-1.0, 2.0, 1.0)


def test_a_velocity_takes_the_velocity_both_ways_and_increments_take_it_as_their_rate(make: SimpleNamespace) -> None:
    channel = one(make, TURNS, kind="velocity", unit="rad/s", lower=-1.0)
    assert (channel.lower, channel.upper, channel.max_rate) == (-1.0, 3.0, 10.0)
    channel = one(make, TURNS, kind="delta_previous")
    assert (channel.lower, channel.upper, channel.max_rate) == (-100.0, 100.0, 3.0)


def test_a_continuous_joint_leaves_the_position_alone(make: SimpleNamespace) -> None:
    channel = one(make, JointLimit("continuous", velocity=2.0))
    assert (channel.lower, channel.upper, channel.max_rate) == (-100.0, 100.0, 2.0)
    assert one(make, JointLimit("continuous"), max_rate=None).max_rate is None


def test_a_full_turn_is_told_of_continuous_joints_alone_in_their_channels_unit(make: SimpleNamespace) -> None:
    spins, contract = (
        JointLimit("continuous"),
        make.contract(make.channel("j", unit="rad"), make.channel("k", unit="deg")),
    )
    assert full_turns(contract, {"j": spins, "k": spins}) == pytest.approx([math.tau, 360.0])
    assert full_turns(contract, {"j": TURNS, "other": spins}) == [math.inf, math.inf]


def test_every_set_point_wants_limits_a_gripper_too(make: SimpleNamespace) -> None:
    contract = make.contract(
        make.channel("v", "velocity"),
        make.channel("a"),
        make.channel("o", "delta_origin"),
        make.channel("g", "gripper"),
    )
    assert unlimited(contract, {}) == "a"
    assert unlimited(contract, {"a": TURNS, "o": TURNS}) == "g"
    assert unlimited(contract, {"a": TURNS, "o": TURNS, "g": TURNS}) == ""


def test_units_are_compared_not_guessed(make: SimpleNamespace) -> None:
    channel = one(make, TURNS, unit="deg", max_rate=None)
    assert (channel.lower, channel.upper) == (pytest.approx(math.degrees(-1.5)), 100.0)
    assert one(make, TURNS, unit="deg").max_rate == 10.0
    slides = JointLimit("prismatic", 0.0, 0.04, 0.2)
    assert one(make, slides, unit="mm", kind="gripper").upper == pytest.approx(40.0)
    for limit, unit, kind in ((TURNS, "px", "absolute"), (TURNS, "m", "absolute"), (TURNS, "rad", "velocity"),
                              (slides, "rad", "absolute"), (TURNS, "", "gripper")):  # fmt: skip
        with pytest.raises(ContractError, match=f"channel 'j': unit '{unit}'"):
            one(make, limit, unit=unit, kind=kind)


@pytest.mark.parametrize(
    ("limit", "rules", "complaint"),
    [
        (JointLimit("revolute", 200.0, 300.0, 1.0), {}, "[-100, 100] does not overlap its joint's limits [200, 300]"),
        (JointLimit("revolute", 100.0, 300.0, 1.0), {}, "does not overlap"),
        (JointLimit("revolute", 0.0, 0.0, 1.0), {}, "does not overlap"),
        (JointLimit("revolute", -1.0, 1.0, 0.0), {}, "velocity limit is 0"),
        (JointLimit("revolute", -1.0, 1.0, 1.0, mimics="k"), {}, "mimics 'k'"),
        (TURNS, {"hold": "value", "hold_value": 50.0}, "hold_value"),
        (JointLimit("revolute", 1.0, 2.0, 3.0), {"hold": "zero"}, "hold"),
    ],
)
def test_limits_that_leave_nothing_are_refused(make: SimpleNamespace, limit: Any, rules: Any, complaint: str) -> None:
    with pytest.raises(ContractError, match="channel 'j'") as caught:
        one(make, limit, **rules)
    assert complaint in str(caught.value)


def test_channels_without_a_joint_stay_as_they_were(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("a", unit="px"), make.channel("j", unit="rad"))
    tightened = tighten(rules, {"j": TURNS, "other": TURNS})
    assert tightened.channels[0] == rules.channels[0]
    assert tightened.dt_ms == rules.dt_ms
    assert tighten(rules, {}) == rules
    assert tighten(tightened, {"j": TURNS}) == tightened


NUMBERS = st.floats(-300, 300)
POSITIVE = st.floats(1e-3, 300)


@given(
    kind=st.sampled_from(["absolute", "delta_origin", "gripper", "velocity", "delta_previous"]),
    limit=st.builds(JointLimit, st.sampled_from(["revolute", "continuous"]), NUMBERS, NUMBERS, POSITIVE | st.just(0.0)),
    rate=st.none() | POSITIVE,
    bounds=st.tuples(st.floats(-200, -0.01), st.floats(0.01, 200)),
)
def test_never_wider(
    make: SimpleNamespace, kind: str, limit: JointLimit, rate: float | None, bounds: tuple[float, float]
) -> None:
    unit = "rad/s" if kind == "velocity" else "rad"
    before = make.channel("j", kind, unit=unit, lower=bounds[0], upper=bounds[1], max_rate=rate)
    try:
        after: Contract = tighten(make.contract(before), {"j": limit})
    except ContractError:
        return
    channel = after.channels[0]
    assert before.lower <= channel.lower < channel.upper <= before.upper
    assert (channel.max_rate or math.inf) <= (before.max_rate or math.inf)
    if kind == "velocity":
        assert max(-channel.lower, channel.upper) <= limit.velocity
    else:
        assert channel.max_rate is not None
        assert channel.max_rate <= limit.velocity
    if kind in ("absolute", "delta_origin", "gripper"):
        assert limit.lower <= channel.lower
        assert channel.upper <= limit.upper
