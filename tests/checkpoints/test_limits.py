"""A value of a file is shown shortly, whatever it is."""

from __future__ import annotations

from typing import Any

from auras_ros.checkpoints import limits


def test_a_value_is_shown_shortly_whatever_it_is() -> None:
    laughs: Any = "ha"
    for _ in range(60):
        laughs = (laughs, laughs)
    assert limits.shown(laughs) == "tuple of 2"
    assert limits.shown([50, "a", None]) == "[50, 'a', None]"
    assert limits.shown(object()) == "<object>"
    assert len(limits.shown("x" * 10_000)) < 300
