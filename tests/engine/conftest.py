"""Folders are written once for all tests of a process: transformers is slow to start."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.vlm.folders import Written, write

IDEFICS3 = {"model_type": "idefics3", "vision_config": {"model_type": "idefics3_vision"}}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """The folder of a kind, and the model that wrote it."""

    @cache
    def make(kind: str) -> Written:
        path: Path = tmp_path_factory.mktemp(kind)
        if kind == "cogagent":
            from tests.models.test_cogagent import folder

            return Written(folder(path)[0], None)
        changes: dict[str, Any] = IDEFICS3 if kind == "idefics3" else {}
        return write("smolvlm" if kind == "idefics3" else kind, path, **changes)

    return make
