"""Chunks and their provenance keep their form, in memory and on the wire."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.action import Channel, Chunk, Contract, ContractError, Provenance, from_wire, to_wire

FULL = Provenance(
    origin_stamp_ns=5,
    origin_mono_ns=-7,
    host="boot",
    session="s1",
    frame=3,
    request=4,
    epoch=2,
    context_age_ns=(10, 20),
    prompt='push the "tee"\n→ left',
    adapter="a",
    plan="seq",
    checkpoint="c",
)
RULES = Contract(
    tuple(Channel.from_dict({"name": n, "unit": "m", "kind": "absolute", "lower": 0, "upper": 1, "hold": "last"})
          for n in ("x", "y")),
    100,
)  # fmt: skip


def test_provenance_survives_json() -> None:
    assert Provenance.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"origin_stamp_ns": 1.5}, "origin_stamp_ns"),
        ({"origin_mono_ns": True}, "origin_mono_ns"),
        ({"origin_mono_ns": None}, "origin_mono_ns"),
        ({"request": 2**63}, "request"),
        ({"epoch": "1"}, "epoch"),
        ({"frame": []}, "frame"),
        ({"context_age_ns": 5}, "context_age_ns"),
        ({"context_age_ns": [1, "2"]}, "context_age_ns"),
        ({"prompt": 5}, "prompt"),
        ({"session": None}, "session"),
        ({"mood": "good"}, "mood"),
    ],
)
def test_provenance_names_the_bad_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ContractError, match=field):
        Provenance.from_dict({**FULL.to_dict(), **changes})


@pytest.mark.parametrize("key", ["origin_stamp_ns", "origin_mono_ns"])
def test_the_origin_is_required(key: str) -> None:
    raw = FULL.to_dict()
    del raw[key]
    with pytest.raises(ContractError, match=f"{key}: missing"):
        Provenance.from_dict(raw)


def test_actions_are_a_read_only_copy() -> None:
    source = np.zeros((2, 2))
    chunk = Chunk(source, FULL)
    source[0, 0] = 9.0
    assert chunk.actions[0, 0] == 0.0
    assert chunk.horizon == 2
    with pytest.raises(ValueError, match="read-only"):
        chunk.actions[0, 0] = 1.0


@pytest.mark.parametrize("actions", [[], [1.0, 2.0], [[[1.0]]], [["a"]], np.zeros((0, 2)), np.zeros((2, 0)), None])
def test_a_shape_that_is_no_chunk_is_refused(actions: Any) -> None:
    with pytest.raises(ContractError, match="actions"):
        Chunk(actions, FULL)


def test_integers_become_floats() -> None:
    assert Chunk([[1, 2]], FULL).actions.dtype == np.float64


def test_a_reference_of_another_length_is_refused() -> None:
    with pytest.raises(ContractError, match="reference: 3 values for 2"):
        Chunk([[1, 2]], FULL, [1, 2, 3])


def test_the_channel_count_must_fit() -> None:
    with pytest.raises(ContractError, match="3 channels, the contract has 2"):
        Chunk([[1, 2, 3]], FULL).check(RULES)


@pytest.mark.parametrize("reference", [None, [0.0, np.nan], [0.0, np.inf]])
def test_delta_origin_needs_a_reference(make: SimpleNamespace, reference: Any) -> None:
    rules = make.contract(make.channel("a"), make.channel("d", "delta_origin"))
    with pytest.raises(ContractError, match="'d' is delta_origin"):
        Chunk([[1, 2]], FULL, reference).check(rules)
    Chunk([[1, 2]], FULL, [np.nan, 0.0]).check(rules)  # 'a' needs none


@given(
    values=st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=8),
    reference=st.none() | st.tuples(st.floats(allow_infinity=False), st.floats(allow_infinity=False)),
    prompt=st.text(),
)
def test_the_wire_keeps_every_chunk(values: Any, reference: Any, prompt: str) -> None:
    source = Provenance(1, 2, prompt=prompt)
    chunk = Chunk(values, source, reference)
    dims, data = to_wire(chunk, RULES)
    assert dims[0] == ("horizon", len(values), 2 * len(values))
    assert dims[1] == ("x,y", 2, 2)
    assert dims[2][1:] == (1, 1)
    back = from_wire(dims, data.tolist(), RULES)
    np.testing.assert_array_equal(back.actions, chunk.actions)
    assert back.provenance == source
    if reference is None:
        assert back.reference is None
    else:
        np.testing.assert_array_equal(back.reference, chunk.reference)


def test_the_wire_refuses_a_chunk_that_does_not_fit() -> None:
    with pytest.raises(ContractError, match="channels"):
        to_wire(Chunk([[1.0]], FULL), RULES)


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        (0, ("steps", 1, 2), r"dim\[0\]"),
        (0, ("horizon", 0, 0), r"dim\[0\]"),
        (0, ("horizon", 2**32 - 1, 2), r"dim\[0\]"),
        (0, ("horizon", 2, 4), "data: 2 values for 2 x 2"),
        (1, ("y,x", 2, 2), r"dim\[1\]"),
        (1, ("x,y", 3, 3), r"dim\[1\]"),
        (1, ("x", 1, 1), r"dim\[1\]"),
        (2, ("{", 1, 1), r"dim\[2\]: not JSON"),
        (2, ("[" * 60000, 1, 1), r"dim\[2\]: not JSON"),
        (2, ("5", 1, 1), r"dim\[2\]: expected a JSON object"),
        (2, ("{}", 1, 1), "origin_stamp_ns: missing"),
        (2, (" " * 70000 + "{}", 1, 1), "70002 characters"),
        (2, ('{"origin_stamp_ns":1,"origin_mono_ns":1,"reference":5}', 1, 1), "reference"),
        (2, ('{"origin_stamp_ns":1,"origin_mono_ns":1,"reference":["a",1]}', 1, 1), "reference"),
        (2, ('{"origin_stamp_ns":1,"origin_mono_ns":1,"reference":[1]}', 1, 1), "reference"),
        (2, ('{"origin_stamp_ns":1,"origin_mono_ns":1,"reference":[1,1' + "0" * 400 + "]}", 1, 1), "reference"),
        (2, ('{"origin_stamp_ns":1' + "0" * 9000 + ',"origin_mono_ns":1}', 1, 1), r"dim\[2\]: not JSON|origin"),
    ],
)
def test_a_foreign_message_is_refused_by_part(part: int, value: tuple[str, int, int], text: str) -> None:
    dims, data = to_wire(Chunk([[0.5, 0.5]], FULL), RULES)
    dims[part] = value
    with pytest.raises(ContractError, match=text):
        from_wire(dims, data, RULES)


def test_foreign_dimensions_and_data_are_refused() -> None:
    dims, data = to_wire(Chunk([[0.5, 0.5]], FULL), RULES)
    with pytest.raises(ContractError, match="2 dimensions"):
        from_wire(dims[:2], data, RULES)
    with pytest.raises(ContractError, match="data: not numbers"):
        from_wire(dims, ["a", "b"], RULES)
    with pytest.raises(ContractError, match="data: 0 values"):
        from_wire(dims, [], RULES)
