from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("transformers")

from tests.checkpoints.vlm.folders import write


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights: its answers differ."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    with torch.no_grad():
        write("smolvlm", path)
    return path
