"""Lockstep: environments of a batch leave, and the others go on as if they had been alone; with the real policy, whose
perception hands on a row for each picture."""

from __future__ import annotations

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.context import of_environments
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.policies.noise import noise_tape
from tests.policies import tiny

SEEDS = (3, 8, 5)
STEPS = 4


def emitted(text: str, alone: bool) -> list[tuple[Emission, int]]:
    """(emission, row of the third environment): from the start alone, or beside two others, of which one leaves."""
    policy = tiny.exact_policy(STEPS)
    rows = [2] if alone else [0, 1, 2]

    def noise(request: int) -> torch.Tensor:
        return torch.stack([noise_tape(policy.noise_shape, SEEDS[row], request) for row in rows])

    executor, found = make_executor(policy, Plan.parse(text), noise, VirtualClock()), []
    for frame in range(16):
        if frame == 7 and not alone:
            rows = [2, 0]
            executor.keep(torch.tensor([2, 0]))
        images, state = tiny.observed(3, frame + 1)
        for worker in executor.workers:
            worker.begin(Latched(images[rows], state[rows], ObservationOrigin(frame, frame)), frame)
            worker.run()
            emission = worker.end(frame)
            if emission is not None:
                found += [(each, rows.index(2)) for each in emission.every]
    executor.close()
    return found


@pytest.mark.parametrize(
    "text",
    [
        "all,mode=seq",
        "all,mode=dec",
        "all,mode=par,concurrency=2,together=true",
        "all,mode=auras,pp_generation=4",
        "all,mode=auras,pp_generation=2,pp_perception=2",
        "all,mode=auras,pp_generation=4,pp_perception=3,fetch_offset=-1,batched=false",
    ],
)
def test_the_others_go_on_as_if_they_had_been_alone(text: str) -> None:
    beside, alone = emitted(text, False), emitted(text, True)
    assert len(beside) == len(alone) > 7
    for (one, row), (other, _) in zip(beside, alone, strict=True):
        torch.testing.assert_close(one.actions[row], other.actions[0], rtol=0, atol=0.05)  # px of 512
        assert (one.actions[row - 1] - other.actions[0]).abs().max() > 1.0


def test_rows_that_belong_to_no_environment_are_refused() -> None:
    part = torch.arange(12).reshape(6, 2)
    assert of_environments(part, torch.tensor([2, 0]), 3).tolist() == [[8, 9], [10, 11], [0, 1], [2, 3]]
    with pytest.raises(ValueError, match="6 rows for 4 environments"):
        of_environments(part, torch.tensor([0]), 4)
