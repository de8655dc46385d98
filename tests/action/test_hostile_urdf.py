"""Robot descriptions of an attacker, as a text and as what the reader's process gets on its standard input.

Guards: entities; depth and size without bounds; numbers that only Python takes; a joint of two kinds, of which the last
one decides; an answer of megabytes that the actuator would have to read; an error that forges a line of the log.
"""

from __future__ import annotations

import io
import json
import sys
import time
import tracemalloc

import pytest

from auras_ros.action import ContractError, JointLimit, joint_limits
from auras_ros.action.urdf import main
from tests.action.hostile_urdf import HOSTILE

ENOUGH_S = 30.0  # for the largest ones, with room for a busy machine; the reader's process is ended after twenty
MOST_ANSWER = 2000  # bytes that the actuator reads
MOST_MEMORY = 400 << 20
GOOD_LIMIT = JointLimit("revolute", -1.0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_description_is_refused_in_one_line_or_read(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = HOSTILE[name]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(hostile.payload())))
    began_s = time.monotonic()
    main(["good"])
    assert time.monotonic() - began_s < ENOUGH_S
    written = capsys.readouterr().out
    assert len(written) < MOST_ANSWER
    answer = json.loads(written)
    if hostile.refused:
        assert answer["error"].startswith("robot description: ")
        assert hostile.refused in answer["error"]
        assert answer["error"].isprintable()
    else:
        assert {name: JointLimit(**fields) for name, fields in answer["limits"].items()} == {"good": GOOD_LIMIT}


LARGEST = ("joints-of-many-parts", "twenty-thousand-joints", "attribute-of-100-MB")


@pytest.mark.parametrize("name", LARGEST)
def test_memory_is_bounded_by_the_size_that_is_read(name: str) -> None:
    text = HOSTILE[name].payload().decode()
    tracemalloc.start()
    try:
        if HOSTILE[name].refused:
            with pytest.raises(ContractError):
                joint_limits(text)
        else:
            joint_limits(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY


@pytest.mark.parametrize("text", [None, b"<robot/>", 3, ["<robot/>"], {"robot": 1}])
def test_what_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(ContractError, match=r"robot description: expected text, got \w+"):
        joint_limits(text)  # type: ignore[arg-type]
