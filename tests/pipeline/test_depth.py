"""From the loop of a worker's thread to the network without detours: how many calls of ours lie between."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import auras_ros
from auras_ros.clock import MonotonicClock
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from tests.pipeline.families import FORMS, checkpoint

MOST = 5
OURS = str(Path(auras_ros.__file__).parent)


def below_the_loop() -> list[str]:
    """Our functions on the stack, from the network up to the loop, without both: a model's own are the network's."""
    found, frame = list[str](), sys._getframe(1)
    while frame is not None and frame.f_code is not Live._loop.__code__:
        name = frame.f_code.co_filename
        if name.startswith(OURS) and not name.startswith(f"{OURS}/models/"):
            found.append(frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return found


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *(("diffusion", mode) for mode in ("seq", "auras,pp_generation=2", "dec", "par,concurrency=2")),
        *(
            ("tokens", mode)
            for mode in ("seq", "auras,pp_generation=2", "auras,pp_generation=2,merge=frame,reuse=exact")
        ),
        ("pi0", "auras,pp_generation=2"),
    ],
)
def test_at_most_five_calls_of_ours_lie_between_the_loop_and_the_network(kind: str, changes: str) -> None:
    policy: Any = checkpoint(kind).policy(FORMS[kind][0])
    plan = Plan.parse(f"{FORMS[kind][0]},mode={changes}")
    images, state = policy.example(1, torch.Generator().manual_seed(0))
    like = Latched(images, state, ObservationOrigin(0, 0))
    executor = make_executor(RunContext(policy, plan, noise_of(policy, 0), like, MonotonicClock()))
    executor.warm_up(1)
    depths, came = list[list[str]](), threading.Event()

    def noted(*_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            depths.append(below_the_loop())

    networks = {"tokens": "decoder", "pi0": "prefix.model.expert"}
    policy.get_submodule(networks.get(kind, "network")).register_forward_pre_hook(noted)

    def emit(emission: Emission) -> None:
        came.set()

    live = Live(executor, lambda now_ns: Latched(images, state, ObservationOrigin(now_ns, now_ns)), emit)
    live.start()
    try:
        assert came.wait(30)
    finally:
        live.halt()
        executor.close()
    settled = min(depths, key=len)  # a stage's first run has one call more, which listens
    assert 3 < len(settled) <= MOST, settled
