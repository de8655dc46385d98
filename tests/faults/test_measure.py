"""The script that measures planted faults: its lines, its report, and what it says of a promise that is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import measure


def test_a_kind_that_is_not_there_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--only", "earthquake"], ["-n", "0"]):
        with pytest.raises(SystemExit):
            measure.main(argv)
        assert "frame_hung" in capsys.readouterr().err


def test_a_time_beyond_its_limit_is_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(measure.KINDS, "frame_hung", lambda *_: {"found": [900.0, 1100.0], "ended": [5000.0]})
    path = tmp_path / "faults.json"
    assert measure.main(["--only", "frame_hung", "--json", str(path)]) == 1
    output = capsys.readouterr().out
    assert "frame_hung found: 1100.0 ms, promised within 1000" in output
    found = json.loads(path.read_text())
    assert found["summary"]["frame_hung_found_max"] == 1100.0
    assert len(found["rows"]) == 3


def test_it_measures_what_is_planted(checkpoint: str) -> None:
    """The quickest kind; each promise of the others has a test of its own."""
    found = measure.measure(["prompt_huge"], 1, checkpoint)
    assert {row["to"] for row in found.rows} == {"said", "refused"}
    times = {row["to"]: row["ms"] for row in found.rows}
    assert times["refused"] > 0
    assert times["said"] > 0  # by another clock
