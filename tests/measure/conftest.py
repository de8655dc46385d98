"""The tiny policy under a name of the registry, and its executors, as the benches' tests have them."""

from __future__ import annotations

from tests.bench.conftest import bench, quick, tiny

__all__ = ["bench", "quick", "tiny"]
