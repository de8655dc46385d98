"""The push table, simulated once for all tests of this room."""

from __future__ import annotations

import pytest

from auras_ros.train.push_table import PushTable, build_push_table


@pytest.fixture(scope="session")
def table() -> PushTable:
    return build_push_table()
