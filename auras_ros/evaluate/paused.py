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

    def play(self, executor: Executor, episode_runners: EpisodeRunners, now_ns: int, watch: Watch) -> None:
        """Frame by frame until no episode is left: observe, begin and run, end, offer, move the world."""
        lasts = executor.plan.concurrency if executor.plan.mode == "par" else 1
        ends: dict[str, int] = {}  # worker -> its last frame
        frame = 0
        while episode_runners.living:
            executor.clock.sleep_until_ns(now_ns)
            episode_runners.observe(now_ns, now_ns)
            began = self._begin(executor, episode_runners, now_ns, ends)
            for worker in began:
                ends[worker.name] = frame + lasts - 1
                worker.run()
            for worker in executor.workers:
                if ends.get(worker.name) == frame:
                    del ends[worker.name]
                    emission = worker.end(now_ns)
                    for each in () if emission is None else emission.every:
                        episode_runners.offer(each, now_ns)
            now_ns = self._move(executor, episode_runners, now_ns, watch)
            frame += 1

    def _begin(
        self, executor: Executor, episode_runners: EpisodeRunners, now_ns: int, busy: dict[str, int]
    ) -> list[Worker]:
        began = []
        episode_runners.frames += 1
        for worker in executor.workers:
            if worker.name not in busy and worker.wants(episode_runners.seen(now_ns), now_ns):
                worker.begin(episode_runners.seen(now_ns), now_ns)
                began.append(worker)
        return began

    def _move(self, executor: Executor, episode_runners: EpisodeRunners, now_ns: int, watch: Watch) -> int:
        """The frame's control steps. Returns when the next frame starts."""
        next_ns = now_ns + self.frame_steps * episode_runners.dt_ns
        for at_ns in range(now_ns, next_ns, episode_runners.dt_ns):
            if at_ns > now_ns:
                episode_runners.observe(at_ns, next_ns)
            episode_runners.tick(at_ns)
            watch(episode_runners)
            if not episode_runners.living:
                break
        return next_ns
