from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("transformers")

from tests.checkpoints.vlm.folders import write
from tests.serve.serving import Served, serving


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SmolVLM2."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    with torch.no_grad():
        write("smolvlm", path)
    return path


@pytest.fixture(scope="session")
def served(folder: Path) -> Iterator[Served]:
    """For tests that leave nothing behind."""
    with serving(folder, images=2, image_mpixels=1, body_mib=1) as made:
        yield made
