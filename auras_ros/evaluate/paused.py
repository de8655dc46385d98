"""The paused clock, the paper's (rule 12 of docs/pipeline.md): the world waits for every frame.

After a frame it moves a fixed number of steps. All modes have frames of the same length, so what is compared is what
they saw, not how fast they are. Nothing here measures or charges time.
"""

from __future__ import annotations

from dataclasses import dataclass

from auras_ros.evaluate.episode_runners import EpisodeRunners, Watch
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.request import Worker


@dataclass(frozen=True)
class Paused:
    """frame_steps: control steps of a frame. Every worker's frame takes one; a request of par takes as many frames as
    there are workers, and one begins in each frame, so that its chunk comes workers - 1 frames late (rule 3 of
    docs/pipeline.md).
    """

    frame_steps: int

    name = "paused"

    def __post_init__(self) -> None:
        if self.frame_steps < 1:
            raise ValueError(f"frame_steps must be at least 1, got {self.frame_steps}")

    def play(self, executor: Executor, runners: EpisodeRunners, now_ns: int, watch: Watch) -> None:
        """Frame by frame until no episode is left: observe, begin and run, end, offer, move the world."""
        lasts = executor.plan.concurrency if executor.plan.mode == "par" else 1
        ends: dict[str, int] = {}  # worker -> its last frame
        frame = 0
        while runners.living():
            executor.clock.sleep_until_ns(now_ns)
            runners.observe(now_ns, now_ns)
            runners.frames += 1
            seen, began = runners.seen(now_ns), list[Worker]()
            for worker in executor.workers:
                if worker.name not in ends and worker.wants(seen, now_ns):
                    worker.begin(seen, now_ns)
                    began.append(worker)
            for worker in began:
                ends[worker.name] = frame + lasts - 1
                worker.run()
            for worker in executor.workers:
                if ends.get(worker.name) == frame:
                    del ends[worker.name]
                    runners.take(worker.end(now_ns), now_ns)
            now_ns = self._move(runners, now_ns, watch)
            frame += 1

    def _move(self, runners: EpisodeRunners, now_ns: int, watch: Watch) -> int:
        """The frame's control steps. Returns when the next frame starts."""
        next_ns = now_ns + self.frame_steps * runners.dt_ns
        for at_ns in range(now_ns, next_ns, runners.dt_ns):
            if at_ns > now_ns:
                runners.observe(at_ns, next_ns)
            runners.tick(at_ns)
            watch(runners)
            if not runners.living():
                break
        return next_ns
