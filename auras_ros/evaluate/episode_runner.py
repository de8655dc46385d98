"""Plays one episode: a world, and the observation and action code that the nodes run.

An episode runner has no schedule or batch, and no access to other episodes. Times are arguments, ns on one virtual
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from auras_ros.action import DEFAULT_ENSEMBLE_DECAY, ActionStream, ActionStreamOptions, Chunk, Command, Contract
from auras_ros.action.verdict import ChunkRefusal, Rejected
from auras_ros.evaluate.fit import misfit
from auras_ros.evaluate.outcome import EpisodeRecord
from auras_ros.evaluate.seams import Seams, SeamWatch
from auras_ros.observation import Assembler, Observation, ObservationFault
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.sim.world import World, WorldLostError
from auras_ros.sim.worlds import find

LATE = frozenset({ChunkRefusal.PAST, ChunkRefusal.TOO_OLD, ChunkRefusal.OUT_OF_ORDER})  # refusals of a slow schedule


class LockstepError(RuntimeError):
    """The runtime refused an input of lockstep: an error in the set-up, never of the policy."""


@dataclass(frozen=True)
class Task:
    """What is played. sim: the world's name, with options if any (`sim.worlds.find`). waits: the world stands still
    until the first chunk, as a live one does; otherwise time runs from the start, and a schedule's first frames cost
    steps.

    seam, blend_ms, ensemble_decay: how a chunk follows another, see `action.ActionStream`. ticks_per_step: actuator
    ticks in a control step. The world takes the command of the tick at which its step begins, as it takes the newest
    one when it is played over topics; commands of other ticks are published but change no step. They matter for
    measurements of the commands, and for what depends on ticks: a blend, and a rate limit.
    """

    sim: str = "pusht"
    max_steps: int = 300
    waits: bool = False
    seam: str = "switch"
    blend_ms: float = 0.0
    ensemble_decay: float = DEFAULT_ENSEMBLE_DECAY
    ticks_per_step: int = 1

    def world(self) -> World:
        """Raises ValueError by name, and ModuleNotFoundError if its simulator is not installed."""
        return find(self.sim).make()

    def stream(self, contract: Contract, max_age_ms: float) -> ActionStream:
        """Raises ContractError, naming the option, and ValueError if the ticks do not fill a step."""
        if self.ticks_per_step < 1 or contract.dt_ns % self.ticks_per_step:
            raise ValueError(f"ticks_per_step: {self.ticks_per_step} do not fill a step of {contract.dt_ms:g} ms")
        tick_ns = contract.dt_ns // self.ticks_per_step
        options = ActionStreamOptions(tick_ns, self.blend_ms, 0.0, max_age_ms, self.seam, self.ensemble_decay)
        return ActionStream(contract, options)


class EpisodeRunner:
    """See the module's docstring. world: reset to the seed. plain: a chunk runs from its index 0 whenever it comes
    (par, as in the paper). seams: optional counter of this episode's seams.

    An episode whose world is lost is over, with the reason in its record.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        task: Task,
        seed: int,
        world: World,
        plain: bool,
        now_ns: int,
        seams: Seams | None = None,
    ) -> None:
        contract, dt_ms = checkpoint.contract, checkpoint.contract.dt_ms
        self.seed, self._task, self._plain, self.world = seed, task, plain, world
        why = misfit(contract, [each.name for each in checkpoint.spec.cameras], world)
        require(not why, why)
        self._low, self._high = np.array([(each.low, each.high) for each in self.world.channels]).T
        self._dt_ns = contract.dt_ns
        self._assembler = Assembler(checkpoint.spec, dt_ms, dt_ms, 0.0)
        self._stream = task.stream(contract, checkpoint.horizon * dt_ms)
        span_ns, tick_ns = checkpoint.horizon * contract.dt_ns, self._stream.tick_ns
        self._watch = None if seams is None else SeamWatch(contract, tick_ns, span_ns, seams)
        self._next_tick_ns = now_ns
        self.episode = EpisodeRecord(seed, False, 0)
        self._started = not task.waits
        try:
            state = self.world.state()
        except WorldLostError as error:
            self._lose(error)
            return
        joints = () if checkpoint.spec.state is None else checkpoint.spec.state.names
        missing = ", ".join(name for name in joints if name not in state)
        require(not missing, f"the world's state has no {missing}, which the policy sees; it has {', '.join(state)}")
        verdict = self._stream.arm(now_ns, [state.get(name, np.nan) for name in contract.names])
        require(verdict.ok, f"seed {seed}: arming refused: {verdict.detail}")

    @property
    def done(self) -> bool:
        ended = self.episode.ended or self.episode.lost
        return self.episode.success or bool(ended) or self.episode.steps >= self._task.max_steps

    @property
    def instruction(self) -> str:
        """What the policy is to do now; empty if it is not told, or its world is lost."""
        try:
            return self.world.instruction
        except WorldLostError as error:
            self._lose(error)
            return ""

    def observe(self, now_ns: int, image: bool) -> None:
        """Put what sensors see now. `image=False` skips rendering when no frame will use it."""
        try:
            self._observe(now_ns, image)
        except WorldLostError as error:
            self._lose(error)

    def _observe(self, now_ns: int, image: bool) -> None:
        state = self.world.state()
        faults = [self._assembler.put_state(tuple(state), np.array(list(state.values())), now_ns, now_ns)]
        for camera in self._assembler.spec.cameras if image else ():
            frame = self.world.image(camera.name, camera.height, camera.width)
            faults.append(self._assembler.put_image(camera.name, frame, now_ns, now_ns))
        for fault in faults:
            require(fault is None, str(fault))

    def latch(self, now_ns: int) -> Observation:
        """The newest observation as of now."""
        observation = self._assembler.latch(now_ns)
        if isinstance(observation, ObservationFault):
            raise LockstepError(str(observation))
        return observation

    def offer(self, chunk: Chunk, now_ns: int) -> None:
        """Take a chunk for the steps from now on. Late chunks are counted; any other refusal is an error."""
        if self._plain:  # the stamp still names the observation; alignment uses the monotonic origin
            chunk = replace(chunk, provenance=replace(chunk.provenance, origin_mono_ns=now_ns))
        self._tick_before(now_ns)
        verdict = self._stream.offer(chunk, now_ns)
        late = isinstance(verdict, Rejected) and verdict.reason in LATE
        require(verdict.ok or late, f"chunk refused: {verdict.detail}")
        if self._watch is not None and verdict.ok:
            self._watch.offered(chunk, now_ns)
        self._started = True
        self.episode = replace(self.episode, chunks=self.episode.chunks + 1, refused=self.episode.refused + int(late))

    def tick(self, now_ns: int, frames: int) -> int | None:
        """One control step with the command that is due, brought within the world's bounds: a contract may allow more.
        frames: the executor's frames so far.

        Returns the age of the observation behind the action, in control steps; None if no chunk was active.
        """
        self._tick_before(now_ns)
        command = self._command(now_ns)
        if not self._started:
            return None
        try:
            outcome = self.world.step(np.clip(command.values, self._low, self._high))
        except WorldLostError as error:
            self._lose(error)
            return None
        held = command.provenance is None
        self.episode = replace(
            self.episode,
            success=outcome.success,
            ended=outcome.ended,
            steps=self.episode.steps + 1,
            frames=frames,
            holds=self.episode.holds + int(held),
            best={name: max(share, self.episode.best.get(name, 0.0)) for name, share in outcome.sub_goals.items()},
            last=outcome.statistics,
        )
        if command.provenance is None:
            return None
        return (now_ns - command.provenance.origin_stamp_ns) // self._dt_ns

    def _lose(self, error: WorldLostError) -> None:
        self.episode = replace(self.episode, lost=str(error))

    def _tick_before(self, now_ns: int) -> None:
        """Run the ticks that were due before now, at the times at which they were due. That is exact, because only
        offers and steps of the world come between ticks, and both call this first."""
        while self._next_tick_ns < now_ns:
            self._command(self._next_tick_ns)

    def _command(self, now_ns: int) -> Command:
        command = self._stream.tick(now_ns)
        require(command.publish, f"seed {self.seed}: no command")
        self._next_tick_ns = now_ns + self._stream.tick_ns
        if self._watch is not None:
            self._watch.ticked(command, now_ns)
        return command


def require(condition: bool, text: str) -> None:
    if not condition:
        raise LockstepError(text)
