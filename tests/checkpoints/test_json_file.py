"""JSON that nobody vouches for: what cannot be read in one way only is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros.checkpoints import json_file
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies import checkpoint


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', '{"x": [{"a": {}, "a": {}}]}'])
def test_a_key_that_stands_twice_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"x.json: key 'a' is given more than once"):
        json_file.read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    "text", [f'{{"a": {"9" * 5000}}}', "[" * 100_000, "{", '{"a": "\udc80"}'], ids=["digits", "deep", "cut", "bytes"]
)
def test_what_cannot_be_read_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"x.json: not JSON: "):
        json_file.read_json(tmp_path / "x.json")


def test_a_file_too_large_to_be_a_config_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert json_file.read_json(tmp_path / "x.json") == {"a": 1}
    monkeypatch.setattr("auras_ros.checkpoints.json_file.JSON_BYTES", 7)
    with pytest.raises(CheckpointError, match=r"x.json: 8 bytes, expected 7 at most"):
        json_file.read_json(tmp_path / "x.json")


def test_a_manifest_is_read_so_too(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text('{"format": "auras-policy/1", "format": "auras-policy/1"}')
    with pytest.raises(CheckpointError, match=r"policy.json: key 'format' is given more than once"):
        checkpoint.load(tmp_path)
