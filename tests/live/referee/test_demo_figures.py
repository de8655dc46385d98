"""The demo's figures against numbers computed by hand, and the texts that people read."""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.live.chunk_times import ChunkTimes
from auras_ros.live.referee.episode import Rules, WorldStatus
from auras_ros.live.referee.measures import ActionMark, Measures
from auras_ros.live.referee.referee import Call, Referee
from auras_ros.live.referee.summary import figures, progress_line, remaining_s, table

MS = 1_000_000
S = 1000 * MS


def chunk(request: int, at_ms: int) -> ChunkTimes:
    return ChunkTimes(request, *(round((at_ms + more) * MS) for more in (0, 5, 15, 75, 76)))


def actuator(state: str = "armed", skipped: int = 0, refused: dict[str, int] | None = None) -> dict[str, Any]:
    error = {"n": 500, "p50": 0.1, "p99": 0.5, "max": 2.0}
    counters = {"accepted": 3, "refused": refused or {}}
    return {
        "state": state,
        "scheduling": "fifo 51",
        "interval_error_ms": error,
        "skipped_ticks": skipped,
        "counters": counters,
    }


def status(step: int, missed: int = 0, refused: dict[str, int] | None = None, waiting: bool = False) -> dict[str, Any]:
    return {
        "mono_ns": step * 100 * MS,
        "step": step,
        "missed_ticks": missed,
        "refused": refused or {},
        "waiting": waiting,
    }


def test_rates_count_the_armed_time_of_all_episodes() -> None:
    """Two stretches of 1 s and 0.5 s with 100 + 50 intervals and 12 chunks; the minute between counts for nothing."""
    measures = Measures()
    for start_ms, count, chunks in ((0, 101, 9), (61_000, 51, 3)):
        for i in range(count):
            measures.action((start_ms + 10 * i) * MS, 0, "chunk", 100 * MS, start_ms + i)
        for i in range(chunks):
            measures.chunk(chunk(i, start_ms + 100 * i))
        measures.pause()
    found = measures.figures()
    assert found["armed_s"] == pytest.approx(1.5)
    assert found["actions_per_s"] == pytest.approx(150 / 1.5)
    assert found["chunks_per_s"] == pytest.approx(12 / 1.5)
    assert measures.spans == [(0, 1000 * MS), (61_000 * MS, 61_500 * MS)]


def test_staleness_is_of_actions_that_answer_an_observation() -> None:
    measures = Measures()
    for i, age_ms in enumerate(range(1, 102)):  # 1..101 ms: median 51, 99th percentile 100
        measures.action(i * MS, 0, "blend" if i % 2 else "chunk", age_ms * MS, i)
    measures.action(200 * MS, None, "hold", None, 102)
    measures.action(201 * MS, 3, "hold", 999 * MS, 103)
    spread = measures.staleness()
    assert spread is not None
    assert (spread.p50, spread.p99, spread.max, spread.n) == pytest.approx((51.0, 100.0, 101.0, 101))
    assert measures.actions[-2] == ActionMark(200 * MS, None)
    assert measures.figures()["held_share"] == pytest.approx(2 / 103)


def test_what_was_sent_late_is_told_from_what_was_lost_on_the_way() -> None:
    """Ticks 1 2 . 4 5, then another episode: one lost; the longest gap sent is 12 ms, not the lost one's 20."""
    measures = Measures()
    for tick, at_ms in ((1, 0), (2, 12), (4, 32), (5, 41)):
        measures.action(at_ms * MS, 0, "chunk", 0, tick)
    measures.pause()
    measures.action(9000 * MS, 0, "chunk", 0, 900)
    measures.action(9010 * MS, 0, "chunk", 0, 901)
    measures.action(9020 * MS, 0, "chunk", 0, 1)  # an actuator that started again
    found = measures.figures()
    assert (found["actions_lost"], found["sent_gap_ms_max"]) == (1, 12.0)
    assert "1 actions lost; longest gap between two sent 12.0 ms" in table(played(True), measures, 50.0)


def test_deadlines_missed_before_arming_settled_do_not_count() -> None:
    """A miss reported right after arming is of the time when nothing had to be published."""
    measures = Measures()
    measures.deadlines_missed(7, 0)
    measures.action(0, 0, "chunk", 0, 1)
    measures.deadlines_missed(5, 100 * MS)
    assert measures.figures()["deadline_misses"] == 0
    measures.deadlines_missed(2, 101 * MS)
    assert measures.figures()["deadline_misses"] == 2
    measures.pause()
    measures.deadlines_missed(9, 300 * MS)
    assert measures.figures()["deadline_misses"] == 2


def test_the_actuators_totals_count_by_how_much_they_rose() -> None:
    measures = Measures()
    measures.actuator(actuator(skipped=40, refused={"disarmed": 90}))
    measures.actuator(actuator(skipped=42, refused={"disarmed": 90, "late": 1}))
    measures.actuator(actuator("disarmed", skipped=60, refused={"disarmed": 99, "late": 1}))
    measures.actuator(actuator(skipped=70, refused={"disarmed": 120, "late": 1}))
    measures.actuator(actuator("holding", skipped=71, refused={"disarmed": 120, "late": 3}))
    measures.actuator(actuator(skipped=4, refused={"late": 3}))  # started again: 4 are its own
    assert measures.figures()["skipped_ticks"] == 2 + 1 + 4
    assert measures.refused_chunks == {"late": 1 + 2}
    assert measures.figures()["refused_chunks_late"] == 3


def test_the_tables_totals_count_while_it_moves() -> None:
    measures = Measures()
    measures.world(status(0, refused={"stale": 40}, waiting=True))
    measures.world(status(1, missed=3, refused={"stale": 55}))
    measures.world(status(2, missed=5, refused={"stale": 55, "size": 1}))
    assert measures.refused_actions == {"size": 1}
    assert measures.figures()["missed_steps"] == 2
    assert [mark.step for mark in measures.steps] == [0, 1, 2]


def test_rates_of_the_world_and_its_cameras_count_while_it_is_played() -> None:
    """Two episodes at 10 Hz with a step missed in the first one; the minute between them counts for nothing."""
    measures = Measures()
    for steps in ((0, 1, 2, 4, 5), (600, 601)):
        for step in steps:
            measures.world(status(step))
            measures.picture("top", step * 100 * MS)
        measures.pause()
    measures.picture("hand", 0)
    found = measures.figures()
    assert found["steps_per_s"] == found["camera_top_per_s"] == pytest.approx(5 / 0.6)
    assert "camera_hand_per_s" not in found
    assert "8.33 control steps a second; camera top 8.33\n" in table(played(True), measures, 50.0)


def test_nothing_heard_gives_figures_without_rates() -> None:
    found = Measures().figures()
    assert "chunks_per_s" not in found
    assert "staleness_ms_p50" not in found
    assert found["deadline_misses"] == 0


def test_chunk_times_name_the_key() -> None:
    values = {key: str(i) for i, key in enumerate(vars(chunk(0, 0)))}
    assert ChunkTimes.from_values({**values, "plan": "quick"}).published_ns == 5
    with pytest.raises(ValueError, match="provenance: latched_ns"):
        ChunkTimes.from_values({**values, "latched_ns": "soon"})
    with pytest.raises(ValueError, match="provenance: origin_mono_ns"):
        ChunkTimes.from_values({key: value for key, value in values.items() if key != "origin_mono_ns"})


def played(*outcomes: bool) -> Referee:
    """A referee after these episodes, the next one running."""
    referee = Referee(Rules(), 0)
    for i, success in enumerate((*outcomes, False)):
        now_ns = i * S
        for call in (Call.DISARM, Call.RESET_WORLD):
            referee.on_answer(call, True, "", now_ns)
        referee.on_status(WorldStatus(i, i, 0, {}, False, False, True, 0, now_ns + 1, None), now_ns + 1)
        for call in (Call.RESET_AGENT, Call.ARM):
            referee.on_answer(call, True, "", now_ns + 2)
        done = i < len(outcomes)
        referee.on_status(
            WorldStatus(i, i, 9, {"coverage": 0.96}, success, done, False, 0, now_ns + 3, (1.0, 1.0)), now_ns + 3
        )
    return referee


def test_success_comes_with_its_interval() -> None:
    """8 of 10: the Wilson interval is 49.0 % to 94.3 %, from the formula by hand."""
    referee = played(*[True] * 8, False, False)
    found = figures(referee, Measures())
    assert (found["episodes"], found["successes"], found["success_rate"]) == (10, 8, 0.8)
    assert (found["success_low"], found["success_high"]) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert "8 of 10 episodes (80%, 95 % interval 49% to 94%)" in table(referee, Measures(), 50.0)


def test_no_episode_gives_no_rate() -> None:
    referee = played()
    assert "success_rate" not in figures(referee, Measures())
    assert "no episode was finished" in table(referee, Measures(), 50.0)


def test_the_table_says_what_was_left_out_and_why() -> None:
    referee = played(True)
    referee.on_actuator("disarmed", "the clock went back", 10 * S, 10 * S)
    referee.interrupt()
    referee.void.append("seed 7: the world was reset by somebody else")
    text = table(referee, Measures(), 50.0)
    assert "seed 1: unfinished after 9 steps; disarmed: the clock went back (step 9)" in text
    assert "seed 7: the world was reset by somebody else (void)" in text
    found = figures(referee, Measures())
    assert (found["unfinished"], found["void"]) == (1, 1)


def test_every_figure_of_the_summary_is_a_number() -> None:
    measures = Measures()
    measures.actuator(actuator())
    found = figures(played(True), measures)
    assert found["fifo"] == 1
    assert found["interval_error_ms_p99"] == 0.5
    assert found["interval_error_ms_n"] == 500
    assert all(isinstance(value, (int, float)) for value in found.values())


def test_the_progress_line_says_what_the_referee_does() -> None:
    referee = Referee(Rules(), 0)
    assert progress_line(referee, 0) == "   0 s  0 of 0 succeeded  disarming"
    for call in (Call.DISARM, Call.RESET_WORLD):
        referee.on_answer(call, True, "", 0)
    referee.on_status(WorldStatus(2, 5, 0, {"coverage": 0.0}, False, False, True, 1, 1, None), 1)
    for call in (Call.RESET_AGENT, Call.ARM):
        referee.on_answer(call, True, "", 2)
    referee.on_actuator("armed", "valid chunk", 3, 3)
    referee.on_status(WorldStatus(2, 5, 31, {"coverage": 0.625}, False, False, False, 4, 4, None), 4)
    where = "episode 2  seed 5  step 31  coverage 0.62  armed"
    assert progress_line(referee, 12_000_000_002) == f"  12 s, about 48 s left of this play  0 of 0 succeeded  {where}"


def test_the_remaining_time_is_that_of_episodes_like_those_before() -> None:
    referee = Referee(Rules(seconds=None, episodes=4), 0)
    assert remaining_s(referee, S) is None
    play(referee, 0, ended_s=10)
    assert referee.began_ns == 0
    assert remaining_s(referee, 10 * S) == pytest.approx(30.0)
    play(referee, 1, ended_s=20)
    assert remaining_s(referee, 25 * S) == pytest.approx(15.0)
    assert remaining_s(referee, 36 * S) == pytest.approx(12.0)  # the third takes longer than the others
    play(referee, 2, ended_s=36)
    assert remaining_s(referee, 60 * S) is None  # and the last one longer than all of them
    assert ", about 8 s left of this play  3 of 3 succeeded" in progress_line(referee, 40 * S)


def test_where_the_time_is_limited_no_more_than_that_is_left() -> None:
    referee = Referee(Rules(seconds=12.0, episodes=4), 0)
    play(referee, 0, ended_s=10)
    assert remaining_s(referee, 10 * S) == pytest.approx(2.0)
    referee.interrupt()
    assert remaining_s(referee, 11 * S) is None


def play(referee: Referee, number: int, ended_s: int) -> None:
    """One more episode, armed as soon as the one before has ended."""
    now_ns = referee.finished_ns or 0
    for call in (Call.DISARM, Call.RESET_WORLD):
        referee.on_answer(call, True, "", now_ns)
    referee.on_status(WorldStatus(number, number, 0, {}, False, False, True, 0, now_ns + 1, None), now_ns)
    for call in (Call.RESET_AGENT, Call.ARM):
        referee.on_answer(call, True, "", now_ns)
    ended = WorldStatus(number, number, 9, {}, True, True, False, 0, ended_s * S, (1.0,))
    referee.on_status(ended, ended_s * S)
