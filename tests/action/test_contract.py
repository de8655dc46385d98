"""The channel contract refuses what would move a robot wrongly, and says which channel and field."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.action import Channel, ChannelKind, Contract, ContractError, HoldPolicy, Interpolation

RAW = {
    "name": "agent_x",
    "unit": "px",
    "kind": "absolute",
    "frame": "table",
    "lower": 0.0,
    "upper": 512.0,
    "max_rate": 2000.0,
    "hold": "last",
    "hold_value": None,
    "interpolation": "linear",
}


def test_reads_the_documented_form_and_writes_it_back() -> None:
    raw = {"dt_ms": 100, "channels": [RAW, {**RAW, "name": "agent_y", "max_rate": None}]}
    rules = Contract.from_dict(json.loads(json.dumps(raw)))
    assert rules.names == ("agent_x", "agent_y")
    assert rules.dt_ns == 100_000_000
    first = rules.channels[0]
    assert (first.kind, first.hold) == (ChannelKind.ABSOLUTE, HoldPolicy.LAST)
    assert first.interpolation is Interpolation.LINEAR
    assert rules.channels[1].max_rate is None
    assert rules.to_dict() == raw
    assert Contract.from_dict(rules.to_dict()) == rules


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "a,b"}, "name"),
        ({"name": 3}, "name"),
        ({"unit": None}, "unit"),
        ({"frame": 1}, "frame"),
        ({"kind": "relative"}, "kind"),
        ({"lower": 512.0}, "lower"),
        ({"lower": 600.0}, "lower"),
        ({"lower": float("-inf")}, "lower"),
        ({"upper": float("nan")}, "upper"),
        ({"upper": "512"}, "upper"),
        ({"upper": True}, "upper"),
        ({"upper": 10**400}, "upper"),
        ({"upper": 1.7e308}, "upper"),
        ({"max_rate": 0.0}, "max_rate"),
        ({"max_rate": -1.0}, "max_rate"),
        ({"max_rate": float("inf")}, "max_rate"),
        ({"max_acceleration": 0.0}, "max_acceleration"),
        ({"max_acceleration": -1.0}, "max_acceleration"),
        ({"max_acceleration": float("nan")}, "max_acceleration"),
        ({"max_acceleration": "fast"}, "max_acceleration"),
        ({"hold": "freeze"}, "hold"),
        ({"hold": "value"}, "hold_value"),
        ({"hold": "value", "hold_value": 513.0}, "hold_value"),
        ({"hold": "value", "hold_value": float("nan")}, "hold_value"),
        ({"hold_value": 5.0}, "hold_value"),
        ({"hold": "zero", "lower": 1.0}, "hold"),
        ({"interpolation": "cubic"}, "interpolation"),
        ({"kind": "gripper"}, "interpolation"),
        ({"kind": "delta_previous", "hold": "zero"}, "interpolation"),
        ({"kind": "delta_previous", "interpolation": "step"}, "hold"),
        ({"kind": "velocity"}, "hold"),
        ({"kind": "velocity", "hold": "value", "hold_value": 5.0}, "hold"),
        ({"kind": "velocity", "hold": "zero", "lower": 1.0}, "lower"),
        ({"kind": "delta_previous", "hold": "zero", "interpolation": "step", "lower": 1.0}, "lower"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_each_field_is_checked_by_name(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError, match=field) as caught:
        Channel.from_dict({**RAW, **changes})
    assert "channel" in str(caught.value)


def test_an_acceleration_is_kept_and_none_is_left_out() -> None:
    """Contracts written before there was one read and write as they did."""
    assert Channel.from_dict({**RAW, "max_acceleration": 30}).to_dict() == {**RAW, "max_acceleration": 30.0}
    assert "max_acceleration" not in Channel.from_dict({**RAW, "max_acceleration": None}).to_dict()


@pytest.mark.parametrize("key", ["name", "unit", "kind", "lower", "upper", "hold"])
def test_a_missing_key_is_named(key: str) -> None:
    raw = {name: value for name, value in RAW.items() if name != key}
    with pytest.raises(ContractError, match=f"{key}: missing"):
        Channel.from_dict(raw)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"dt_ms": 100, "channels": []}, "channels: empty"),
        ({"dt_ms": 100, "channels": [RAW, RAW]}, "'agent_x': name: used more than once"),
        ({"dt_ms": 0, "channels": [RAW]}, "dt_ms"),
        ({"dt_ms": -5, "channels": [RAW]}, "dt_ms"),
        ({"dt_ms": float("nan"), "channels": [RAW]}, "dt_ms"),
        ({"dt_ms": "100", "channels": [RAW]}, "dt_ms"),
        ({"dt_ms": 100, "channels": RAW}, "channels: expected a list"),
        ({"dt_ms": 100, "channels": [5]}, "expected an object"),
        ({"dt_ms": 100}, "channels: missing"),
        ({"dt_ms": 100, "channels": [RAW], "rate": 5}, "unknown key 'rate'"),
        ([RAW], "expected an object"),
    ],
)
def test_the_whole_is_checked(raw: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        Contract.from_dict(raw)


def test_kinds_as_mask(make: SimpleNamespace) -> None:
    rules = make.contract(make.channel("a"), make.channel("v", "velocity"), make.channel("g", "gripper"))
    assert rules.is_kind(ChannelKind.VELOCITY, ChannelKind.GRIPPER).tolist() == [False, True, True]


def test_it_is_frozen(make: SimpleNamespace) -> None:
    with pytest.raises(AttributeError):
        make.channel().upper = 5.0
