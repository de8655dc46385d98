"""A node that hears a robot's processes stays on this machine, and what they said stands beside the error."""

from __future__ import annotations

import os
import subprocess

import pytest

from auras_ros.live import loop
from auras_ros.nodes.common import discovery


def test_what_a_process_said_stands_beside_the_error() -> None:
    def end() -> None:
        with loop.process_output() as log:
            subprocess.run(["echo", "the last words"], stdout=log, check=True)
            raise RuntimeError("it ended")

    with pytest.raises(RuntimeError, match=r"\Ait ended\nthe last words\Z"):
        end()


@pytest.mark.parametrize("word", [None, ""])
def test_a_bench_stays_on_this_machine_whatever_is_said_of_cyclone_dds(
    ros_domain_id: int, monkeypatch: pytest.MonkeyPatch, word: str | None
) -> None:
    """It publishes actions: a robot's computer, which exports CYCLONEDDS_URI, is where nobody may hear them."""
    monkeypatch.setenv("CYCLONEDDS_URI", "<CycloneDDS/>")
    monkeypatch.delenv(discovery.OLD_VARIABLE, raising=False)
    if word is None:
        monkeypatch.delenv(discovery.VARIABLE, raising=False)
    else:
        monkeypatch.setenv(discovery.VARIABLE, word)
    with loop.listening("quiet"):
        assert os.environ[discovery.VARIABLE] == "LOCALHOST"
    assert os.environ.get(discovery.VARIABLE) == word


def test_a_bench_keeps_the_range_that_was_chosen(ros_domain_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(discovery.VARIABLE, "OFF")
    with loop.listening("quiet"):
        assert os.environ[discovery.VARIABLE] == "OFF"
