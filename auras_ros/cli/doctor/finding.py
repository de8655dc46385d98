"""The result of one check of `auras doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """`ok`: as it should be. `note`: it runs, but could be better. `problem`: it cannot run."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """`text`: what was found; `remedy`: what to do about it, empty only for `ok`."""

    name: str
    status: Verdict
    text: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.status is not Verdict.OK and not self.remedy:
            raise ValueError(f"finding '{self.name}': a {self.status.value} without a remedy")


Check = Callable[[], Finding]


def ok(name: str, text: str) -> Finding:
    return Finding(name, Verdict.OK, text)


def note(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, Verdict.NOTE, text, remedy)


def problem(name: str, text: str, remedy: str) -> Finding:
    return Finding(name, Verdict.PROBLEM, text, remedy)
