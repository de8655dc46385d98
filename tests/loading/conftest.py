"""Every stage of these tests runs once when it is captured, as in tests/pipeline."""

from __future__ import annotations

from tests.pipeline.conftest import captured_as_on_a_gpu

__all__ = ["captured_as_on_a_gpu"]
