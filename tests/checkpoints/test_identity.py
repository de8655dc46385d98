"""The digest that agent and actuator compare: the same for copies of a checkpoint, another one for another policy."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.identity import DIGEST_CHARACTERS, PIECE_BYTES, PIECES, checkpoint_digest

LARGE_BYTES = PIECES * PIECE_BYTES + 1_000_000


def test_of_ours_it_is_the_manifests_hash_whatever_the_path(tmp_path: Path) -> None:
    shipped = resources.checkpoint("pusht")
    copy = shutil.copytree(shipped, tmp_path / "another name")
    manifest = (shipped / "policy.json").read_bytes()
    assert checkpoint_digest(copy) == checkpoint_digest(shipped) == hashlib.sha256(manifest).hexdigest()
    (copy / "model.safetensors").unlink()  # an actuator's computer may have the manifest alone
    assert checkpoint_digest(copy) == checkpoint_digest(shipped)
    (copy / "policy.json").write_bytes(manifest.replace(b"512.0", b"513.0", 1))
    assert checkpoint_digest(copy) != checkpoint_digest(shipped)


def test_all_shipped_policies_have_their_own() -> None:
    names = ("pusht", "pusht-tokens", "lift", "lift-flow")
    digests = {checkpoint_digest(resources.checkpoint(name)) for name in names}
    assert len(digests) == len(names)
    assert {len(digest) for digest in digests} == {DIGEST_CHARACTERS}


def foreign(folder: Path) -> Path:
    folder.mkdir()
    (folder / "robot.json").write_text("{}")
    (folder / "config.json").write_text('{"type": "act"}')
    (folder / "model.safetensors").write_bytes(bytes(LARGE_BYTES))
    return folder


def test_of_another_librarys_folder_every_file_that_decides_counts(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "one")
    before = checkpoint_digest(folder)
    assert checkpoint_digest(foreign(tmp_path / "two")) == before
    (folder / "README.md").write_text("says nothing")
    assert checkpoint_digest(folder) == before
    seen = {before}
    for name, text in (("robot.json", "[]"), ("config.json", '{"type": "pi0"}'), ("new.json", ""), ("t.jinja", "")):
        (folder / name).write_text(text)
        seen.add(checkpoint_digest(folder))
    assert len(seen) == 5


@pytest.mark.parametrize("place", [0, LARGE_BYTES // 2, LARGE_BYTES - 1], ids=["first", "half", "last"])
def test_of_large_weights_pieces_from_begin_to_end_are_read(tmp_path: Path, place: int) -> None:
    folder = foreign(tmp_path / "one")
    before = checkpoint_digest(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(place)
        file.write(b"\1" * min(PIECE_BYTES, LARGE_BYTES - place))
    assert checkpoint_digest(folder) != before


def test_the_size_counts(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "one")
    before = checkpoint_digest(folder)
    os.truncate(folder / "model.safetensors", LARGE_BYTES + 1)
    assert checkpoint_digest(folder) != before


def test_a_sparse_file_of_a_terabyte_is_not_read_whole(tmp_path: Path) -> None:
    """Reading it would outlast this test's time."""
    folder = foreign(tmp_path / "one")
    os.truncate(folder / "model.safetensors", 1 << 40)
    assert len(checkpoint_digest(folder)) == DIGEST_CHARACTERS


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = foreign(tmp_path / "one")
    os.mkfifo(folder / "x.safetensors")
    with pytest.raises(CheckpointError, match=r"x\.safetensors: is not a regular file"):
        checkpoint_digest(folder)


def test_it_needs_no_torch() -> None:
    code = "import sys; import auras_ros.checkpoints.identity; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
