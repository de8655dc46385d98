"""A sound checkpoint, and a copy of it that a test may spoil."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.policies import tiny


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    tiny.write(folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(written, tmp_path / "copy"))
