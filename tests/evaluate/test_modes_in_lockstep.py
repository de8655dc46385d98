"""The real executor with a tiny policy on real tables: what must be equal is equal, action by action.

Guards: a batch whose rows are mixed up; a schedule that changes what is computed; a clock that costs something where
nothing takes time; an ended episode that changes those beside it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from auras_ros.action import Chunk
from auras_ros.evaluate import episode_runners
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import Timing, play
from auras_ros.evaluate.outcome import ModeResult
from auras_ros.evaluate.paused import Paused
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from tests.evaluate.tables import DT, MS, Recorder, Tables, same, tiny_checkpoint

TOLERANCE_PX = 0.05  # batches of other sizes add up in another order, and every step looks at what came of it
SEEDS = (3, 4, 9)
NOTHING = Charged({"seq": 0, "auras": 0, "par": 0, "dec/perceive": 0, "dec/generate": 0})
SLOW = Charged({"seq": 330 * MS, "auras": 330 * MS, "par": 330 * MS})


@pytest.fixture
def checkpoint() -> Checkpoint:
    return tiny_checkpoint()


class Players:
    """Plays, and returns what the tables were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint) -> None:
        self._monkeypatch, self._checkpoint = monkeypatch, checkpoint

    def __call__(
        self,
        plan: str,
        timing: Timing,
        steps: int = 8,
        seeds: tuple[int, ...] = SEEDS,
        plain: bool = False,
        wins: dict[int, int] | None = None,
    ) -> tuple[dict[int, Recorder], ModeResult]:
        tables = Tables(self._monkeypatch, wins)
        outcome = play(self._checkpoint, Plan.parse(plan), seeds, Task("pusht-drift", steps), timing, plain)
        return tables.take(), outcome


@pytest.fixture
def players(monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint) -> Players:
    return Players(monkeypatch, checkpoint)


TOGETHER = "quick,mode=par,concurrency=2,together=true"
PLANS = (
    "quick",
    "quick,mode=dec",
    "quick,mode=par,concurrency=2",
    TOGETHER,
    "quick,mode=auras,pp_generation=3,alpha=0.5",
)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("clock", ["paused", "charged"])
def test_a_batch_gives_what_each_episode_gives_alone(players: Players, plan: str, clock: str) -> None:
    """Among them episodes that end early and leave the others to go on."""
    durations = {"seq": 230, "auras": 130, "par": 330, "dec/perceive": 40, "dec/generate": 210}
    timing = Paused(2) if clock == "paused" else Charged({key: ms * MS for key, ms in durations.items()})
    wins = {4: 5}
    together, outcome = players(plan, timing, wins=wins)
    alone: dict[int, Recorder] = {}
    parts = []
    for seed in SEEDS:
        worlds, part = players(plan, timing, seeds=(seed,), wins=wins)
        alone |= worlds
        parts.append(part)
    same(together, alone, TOLERANCE_PX)
    joined = ModeResult.join(parts)
    assert [len(world.actions) for world in together.values()] == [8, 5, 8]
    assert (outcome.staleness, outcome.age_ns) == (joined.staleness, joined.age_ns)
    for one, other in zip(outcome.episodes, joined.episodes, strict=True):
        assert one.best == pytest.approx(other.best, abs=1e-3)
        assert (one.success, one.steps, one.frames, one.chunks, one.holds) == (
            *(other.success, other.steps, other.frames, other.chunks, other.holds),
        )


def test_seeds_are_played_differently(players: Players) -> None:
    """Else the test above could not fail."""
    worlds, _ = players("quick", Paused(2))
    actions = [np.array(world.actions) for world in worlds.values()]
    assert np.abs(actions[0] - actions[1]).max() > 1
    assert np.abs(actions[1] - actions[2]).max() > 1


@pytest.mark.parametrize(
    "timing", [Paused(4), Charged({"seq": 230 * MS, "auras": 230 * MS})], ids=["paused", "charged"]
)
def test_auras_of_one_stage_is_seq(players: Players, timing: Timing) -> None:
    """Rule 7 of docs/pipeline.md: bit for bit."""
    seq, one = players("quick", timing)
    auras, other = players("quick,mode=auras", timing)
    same(seq, auras)
    assert one == other


@pytest.mark.parametrize("timing", [Paused(4), SLOW], ids=["paused", "charged"])
def test_aligned_par_of_one_worker_is_seq(players: Players, timing: Timing) -> None:
    seq, one = players("quick", timing)
    par, other = players("quick,mode=par,concurrency=1", timing)
    same(seq, par)
    assert one == other


def test_plain_par_of_one_worker_is_seq_where_no_time_passes(players: Players) -> None:
    """On the charged clock it is not: its chunk is late and runs from its first action nevertheless."""
    seq, _ = players("quick", Paused(4))
    par, _ = players("quick,mode=par,concurrency=1", Paused(4), plain=True)
    same(seq, par)
    aligned, _ = players("quick,mode=par,concurrency=1", SLOW)
    plain, _ = players("quick,mode=par,concurrency=1", SLOW, plain=True)
    assert np.abs(np.array(aligned[3].actions) - np.array(plain[3].actions)).max() > 1


@pytest.mark.parametrize("steps", [1, 3])
def test_frames_that_cost_nothing_on_a_grid_are_paused_frames(players: Players, steps: int) -> None:
    """Without a grid a frame begins with each observation: as paused frames of one step."""
    period = f"frame_period_ms={100 * steps}"
    for mode in ("seq", "par,concurrency=1", "auras"):
        paused, one = players(f"quick,mode={mode}", Paused(steps))
        charged, other = players(f"quick,mode={mode},{period}", NOTHING)
        same(paused, charged)
        assert one == other
    if steps == 1:
        free, _ = players("quick", NOTHING)
        same(players("quick", Paused(1))[0], free)


def test_where_nothing_costs_time_dec_is_seq(players: Players) -> None:
    """Not so on the paused clock: there generation begins beside perception, with the context of the frame before."""
    seq, _ = players("quick", NOTHING)
    dec, _ = players("quick,mode=dec", NOTHING)
    same(seq, dec)
    _, paused = players("quick,mode=dec", Paused(1))
    assert paused.staleness == [0, 7 * len(SEEDS)]
    assert [episode.holds for episode in paused.episodes] == [1] * len(SEEDS)


def test_a_pipeline_of_frames_that_cost_nothing_drains_at_once(players: Players) -> None:
    """So its chunks come in the tick of their observation, which paused frames never allow: one fills it a frame."""
    _, free = players("quick,mode=auras,pp_generation=3", NOTHING)
    assert [episode.holds for episode in free.episodes] == [0] * len(SEEDS)
    _, paused = players("quick,mode=auras,pp_generation=3", Paused(1))
    assert [episode.holds for episode in paused.episodes] == [2] * len(SEEDS)


def test_auras_answers_what_its_last_stage_saw(players: Players) -> None:
    """Paused, all its stages see their frame's own observation; with fetch_offset -1 that of the frame before."""
    _, outcome = players("quick,mode=auras,pp_generation=3", Paused(2), steps=12)
    assert outcome.age_ns == [0, 0, 0]
    assert outcome.staleness == [4 * len(SEEDS), 4 * len(SEEDS)]
    assert {(episode.chunks, episode.frames, episode.holds) for episode in outcome.episodes} == {(4, 6, 4)}
    _, late = players("quick,mode=auras,pp_generation=3,fetch_offset=-1", Paused(2), steps=12)
    chunks = sum(episode.chunks for episode in late.episodes)
    assert late.age_ns == [chunks * 2 * DT] * 3
    assert {age for age, count in enumerate(late.staleness) if count} == {2, 3}


def test_the_skipped_images_change_nothing(players: Players, monkeypatch: pytest.MonkeyPatch) -> None:
    charged = Charged({"seq": 420 * MS})
    lean = [players("quick", timing)[0] for timing in (Paused(4), charged)]
    observe = episode_runners.EpisodeRunners.observe
    monkeypatch.setattr(
        episode_runners.EpisodeRunners, "observe", lambda self, now_ns, soonest_ns: observe(self, now_ns, now_ns)
    )
    full = [players("quick", timing)[0] for timing in (Paused(4), charged)]
    for one, other in zip(lean, full, strict=True):
        same(one, other)
        assert one[3].images < other[3].images == 8


def test_a_run_is_the_same_again(players: Players) -> None:
    plan, timing = "quick,mode=auras,pp_generation=2", Charged({"auras": 170 * MS})
    one, first = players(plan, timing)
    other, second = players(plan, timing)
    same(one, other)
    assert first == second


@pytest.mark.parametrize("timing", [Paused(2), Charged({"par": 200 * MS})], ids=["paused", "charged"])
def test_every_chunk_of_a_batch_is_offered(players: Players, monkeypatch: pytest.MonkeyPatch, timing: Timing) -> None:
    """Two requests that begin together leave together; on the paused clock the batch lasts two frames."""
    noted: dict[tuple[int, int, int], None] = {}  # the same for each episode
    offer = episode_runners.EpisodeRunner.offer

    def note(self: episode_runners.EpisodeRunner, chunk: Chunk, now_ns: int) -> None:
        noted[chunk.provenance.request, chunk.provenance.origin_mono_ns, now_ns] = None
        offer(self, chunk, now_ns)

    monkeypatch.setattr(episode_runners.EpisodeRunner, "offer", note)
    players(TOGETHER, timing, steps=12)
    offered = list(noted)
    assert [request for request, _, _ in offered] == list(range(len(offered)))
    assert len(offered) >= 4
    for one, other in zip(offered[::2], offered[1::2], strict=True):
        assert one[1:] == other[1:]
    begun = [origin_ns for _, origin_ns, _ in offered[::2]]
    assert {after - before for before, after in pairwise(begun)} == {(4 if isinstance(timing, Paused) else 2) * DT}
