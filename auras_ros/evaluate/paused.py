"""The paused clock (design rule 12, the paper's): the world waits for every frame, then moves a fixed number of steps.

All modes have frames of the same length, so what is compared is what they saw, not how fast they are. Nothing here
measures or charges time.
"""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.evaluate.seats import Seats
from auras_ros.evaluate.turn import Watch, step
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.request import Strand


@dataclass(frozen=True)
class Paused:
    """frame_steps: control steps of a frame. A strand's frame is one of these; a par worker's request takes as many
    as there are workers, one beginning in each, so that its chunk comes workers - 1 frames late (design rule 3).
    """

    frame_steps: int

    name = "paused"

    def __post_init__(self) -> None:
        if self.frame_steps < 1:
            raise ValueError(f"frame_steps must be at least 1, got {self.frame_steps}")

    def play(self, executor: Executor, seats: Seats, now_ns: int, watch: Watch) -> None:
        """Frame by frame until no episode is left: observe, begin and run, end, offer, move."""
        lasts = executor.plan.workers if executor.plan.mode == "par" else 1
        ends: dict[str, int] = {}  # strand -> the frame at whose end it is done
        frame = 0
        while len(seats):
            executor.clock.sleep_until_ns(now_ns)
            seats.observe(now_ns, now_ns)
            began = self._begin(executor, seats, now_ns, ends)
            for strand in began:
                ends[strand.name] = frame + lasts - 1
                strand.run()
            for strand in executor.strands:
                if ends.get(strand.name) == frame:
                    del ends[strand.name]
                    emission = strand.end(now_ns)
                    for each in () if emission is None else emission.every:
                        seats.offer(each, now_ns)
            now_ns = self._move(executor, seats, now_ns, watch)
            frame += 1

    def _begin(self, executor: Executor, seats: Seats, now_ns: int, busy: dict[str, int]) -> list[Strand]:
        began = []
        seats.frames += 1
        for strand in executor.strands:
            if strand.name not in busy and strand.wants(seats.seen(now_ns), now_ns):
                strand.begin(seats.seen(now_ns), now_ns)
                began.append(strand)
        return began

    def _move(self, executor: Executor, seats: Seats, now_ns: int, watch: Watch) -> int:
        """The frame's steps; returns when the next frame starts."""
        next_ns = now_ns + self.frame_steps * seats.dt_ns
        for at_ns in range(now_ns, next_ns, seats.dt_ns):
            if at_ns > now_ns:
                seats.observe(at_ns, next_ns)
            step(executor, seats, at_ns)
            watch(seats)
            if not len(seats):
                break
        return next_ns
