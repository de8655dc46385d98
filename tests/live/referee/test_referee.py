"""The referee's logic, fed with recorded events: no ROS, no clock but the one handed in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from auras_ros.live.referee.episode import Rules, WorldStatus
from auras_ros.live.referee.referee import CALL_TIMEOUT_NS, RETRY_NS, Call, Referee, RefereePhase

S = 1_000_000_000
STEP_NS = S // 10


class Table:
    """The other side: a referee, a table and the time between them."""

    def __init__(self, rules: Rules, status: WorldStatus | None = None) -> None:
        self.now_ns = 10 * S
        self.referee = Referee(rules, self.now_ns, status)
        self.episode, self.seed, self.step = 0, 0, 0

    def status(
        self, coverage: float = 0.0, *, done: bool = False, success: bool = False, waiting: bool = False
    ) -> None:
        self.now_ns += STEP_NS
        told = {"episode": self.episode, "seed": self.seed, "step": self.step, "success": success}
        told |= {
            "sub_goals": {"coverage": coverage},
            "done": done,
            "waiting": waiting,
            "stamp_ns": self.now_ns,
            "mono_ns": self.now_ns,
            "action": [1, 2],
        }
        self.referee.on_status(WorldStatus.from_dict(told), self.now_ns)

    def answer(self, call: Call, success: bool = True, message: str = "") -> None:
        assert self.referee.due(self.now_ns) is call
        if call is Call.RESET_WORLD and success:
            self.episode, self.seed, self.step = self.episode + 1, self.seed + 1, 0
        self.referee.on_answer(call, success, message, self.now_ns)

    def actuator(self, state: str, reason: str = "") -> None:
        self.referee.on_actuator(state, reason, self.now_ns, self.now_ns)

    def start(self) -> None:
        """From the first call to the armed table, whatever has to be reset on the way."""
        self.answer(Call.DISARM)
        if self.referee.phase is RefereePhase.RESETTING:
            self.answer(Call.RESET_WORLD)
        self.status(waiting=True)
        self.answer(Call.RESET_AGENT)
        self.answer(Call.ARM)
        assert self.referee.playing
        self.now_ns += STEP_NS
        self.actuator("holding", "awaiting a chunk")
        self.actuator("armed", "valid chunk")

    def play(self, *coverages: float, success: bool) -> None:
        for coverage in coverages:
            self.step += 1
            self.status(coverage)
        self.step += 1
        self.status(coverages[-1], done=True, success=success)


def waiting_status(seed: int = 0) -> WorldStatus:
    return WorldStatus(0, seed, 0, {}, False, False, True, 0, 0, None)


def test_two_episodes_in_order() -> None:
    table = Table(Rules(episodes=2, seconds=None), waiting_status())
    table.start()
    table.play(0.1, 0.97, 0.4, success=False)
    table.start()
    table.play(0.2, 0.96, success=True)
    referee = table.referee
    assert referee.phase is RefereePhase.FINISHED
    assert referee.fault == ""
    assert [e.row() for e in referee.episodes] == [
        {"seed": 0, "success": False, "steps": 4, "best_coverage": 0.97, "last_coverage": 0.4, "notes": ""},
        {"seed": 1, "success": True, "steps": 3, "best_coverage": 0.96, "last_coverage": 0.96, "notes": ""},
    ]
    assert referee.successes == 1


def test_an_untouched_table_is_played_as_it_stands() -> None:
    """Else the first seed would be skipped."""
    table = Table(Rules(), waiting_status())
    table.answer(Call.DISARM)
    assert table.referee.phase is RefereePhase.SHOWING


def test_a_used_table_is_reset_first() -> None:
    table = Table(Rules())
    table.answer(Call.DISARM)
    assert table.referee.phase is RefereePhase.RESETTING


def test_the_agent_is_reset_after_the_new_table_was_shown() -> None:
    """Its history must hold no picture of the old table."""
    table = Table(Rules())
    table.answer(Call.DISARM)
    table.answer(Call.RESET_WORLD)
    assert table.referee.due(table.now_ns) is None
    table.status(waiting=True)
    assert table.referee.due(table.now_ns) is Call.RESET_AGENT


def test_a_step_of_the_old_table_that_comes_late_is_not_the_new_one() -> None:
    table = Table(Rules())
    table.answer(Call.DISARM)
    old = waiting_status(seed=5)
    table.answer(Call.RESET_WORLD)
    table.referee.on_status(old, table.now_ns)
    assert table.referee.phase is RefereePhase.SHOWING


def test_a_seed_is_played_once_even_when_the_bridge_starts_anew() -> None:
    table = Table(Rules(), waiting_status())
    table.start()
    table.play(0.5, success=False)
    table.answer(Call.DISARM)
    table.answer(Call.RESET_WORLD)
    table.seed = 0  # a bridge that was restarted shows its first seed again
    table.status(waiting=True)
    assert table.referee.phase is RefereePhase.RESETTING
    table.answer(Call.RESET_WORLD)
    table.status(waiting=True)
    assert table.referee.phase is RefereePhase.FORGETTING


def test_a_refused_call_is_made_again_after_a_pause() -> None:
    table = Table(Rules(), waiting_status())
    table.answer(Call.DISARM, success=False, message="no joint_states")
    assert table.referee.due(table.now_ns) is None
    table.now_ns += RETRY_NS
    table.answer(Call.DISARM)


def test_a_call_without_answer_is_made_again() -> None:
    table = Table(Rules(), waiting_status())
    assert table.referee.due(table.now_ns) is Call.DISARM
    assert table.referee.due(table.now_ns + CALL_TIMEOUT_NS - 1) is None
    assert table.referee.due(table.now_ns + CALL_TIMEOUT_NS) is Call.DISARM


def test_an_answer_that_nobody_waits_for_changes_nothing() -> None:
    table = Table(Rules(), waiting_status())
    table.referee.on_answer(Call.ARM, True, "", table.now_ns)
    assert table.referee.phase is RefereePhase.DISARMING


def test_patience_ends_with_the_last_refusal() -> None:
    table = Table(Rules(patience_s=5.0), waiting_status())
    table.answer(Call.DISARM)
    table.status(waiting=True)
    table.answer(Call.RESET_AGENT)
    table.answer(Call.ARM, success=False, message="agent 'agent' is silent")
    table.referee.on_time(table.now_ns + 4 * S)
    assert table.referee.fault == ""
    table.referee.on_time(table.now_ns + 6 * S)
    assert table.referee.phase is RefereePhase.FINISHED
    assert table.referee.fault.endswith("actuator/arm answered: agent 'agent' is silent")


def test_no_episode_begins_after_the_time() -> None:
    table = Table(Rules(seconds=1.0), waiting_status())
    table.start()
    table.now_ns += 2 * S
    table.play(0.97, success=True)
    assert table.referee.phase is RefereePhase.FINISHED
    assert len(table.referee.episodes) == 1
    assert table.referee.unfinished is None


def test_an_episode_far_over_time_is_left_out() -> None:
    table = Table(Rules(seconds=1.0, grace_s=15.0), waiting_status())
    table.start()
    table.step = 1
    table.status(0.3)
    began_ns = table.referee.began_ns
    assert began_ns is not None
    table.referee.on_time(began_ns + 16 * S)
    assert table.referee.playing
    table.referee.on_time(began_ns + 16 * S + 1)
    assert table.referee.phase is RefereePhase.FINISHED
    assert table.referee.episodes == []
    assert table.referee.unfinished is not None
    assert (table.referee.unfinished.seed, table.referee.unfinished.steps) == (0, 1)


def test_time_up_between_episodes_ends_without_an_unfinished_one() -> None:
    table = Table(Rules(seconds=5.0), waiting_status())
    table.start()
    table.play(0.97, success=True)
    assert table.referee.phase is RefereePhase.DISARMING
    assert table.referee.began_ns is not None
    table.referee.on_time(table.referee.began_ns + 6 * S)
    assert table.referee.phase is RefereePhase.FINISHED
    assert table.referee.unfinished is None


def test_an_interrupt_leaves_the_running_episode_out() -> None:
    table = Table(Rules(), waiting_status())
    table.start()
    table.referee.interrupt()
    assert table.referee.phase is RefereePhase.FINISHED
    assert table.referee.unfinished is not None


def test_a_hold_within_an_episode_is_noted_once_and_armed_only_for_the_next() -> None:
    """The agent died: nothing is called until the episode is over."""
    table = Table(Rules(), waiting_status())
    table.start()
    table.step = 7
    table.status(0.3)
    for _ in range(3):
        table.actuator("holding", "agent silent for more than 100 ms")
        assert table.referee.due(table.now_ns) is None
    table.play(0.3, success=False)
    assert table.referee.episodes[0].notes == ["holding: agent silent for more than 100 ms (step 7)"]
    assert table.referee.due(table.now_ns) is Call.DISARM


def test_holding_for_the_first_chunk_is_no_fault() -> None:
    table = Table(Rules(), waiting_status())
    table.start()
    table.play(0.97, success=True)
    assert table.referee.episodes[0].notes == []


def test_a_state_from_before_arming_says_nothing() -> None:
    table = Table(Rules(), waiting_status())
    table.answer(Call.DISARM)
    table.status(waiting=True)
    table.answer(Call.RESET_AGENT)
    table.answer(Call.ARM)
    table.actuator("disarmed", "disarm requested")
    assert table.referee.playing


def test_disarmed_before_the_table_moved_the_attempt_is_void_and_its_seed_played_again() -> None:
    table = Table(Rules(), waiting_status())
    table.start()
    table.status(waiting=True)
    table.actuator("disarmed", "not armed yet")
    assert table.referee.void == ["seed 0: disarmed: not armed yet"]
    table.start()
    assert table.seed == 0


def test_a_table_that_never_moves_is_given_up_after_three_attempts() -> None:
    table = Table(Rules(move_s=2.0), waiting_status())
    for _ in range(3):
        table.start()
        table.now_ns += 3 * S
        table.status(waiting=True)
    assert table.referee.phase is RefereePhase.FINISHED
    assert "no action moved the world for 2 s" in table.referee.fault
    assert len(table.referee.void) == 3


@pytest.mark.parametrize("change", [{"episode": 4}, {"seed": 4}, {"step": 0}])
def test_a_table_reset_by_somebody_else_is_void(change: dict[str, int]) -> None:
    table = Table(Rules(), waiting_status())
    table.start()
    table.step = 5
    table.status(0.2)
    vars(table).update(change)
    table.status(0.2)
    assert table.referee.void == ["seed 0: the world was reset by somebody else"]
    assert table.referee.episodes == []
    assert table.referee.phase is RefereePhase.DISARMING


def test_a_table_whose_world_was_lost_is_void_with_the_reason() -> None:
    told = waiting_status()
    table = Table(Rules(), told)
    table.start()
    table.step = 5
    table.status(0.2)
    lost = replace(told, episode=table.episode + 1, seed=table.seed + 1, lost="lift: its process was ended by SIGKILL")
    table.referee.on_status(lost, table.now_ns)
    assert table.referee.void == ["seed 0: lift: its process was ended by SIGKILL"]
    assert table.referee.episodes == []


def test_rules_name_the_field() -> None:
    with pytest.raises(ValueError, match="seconds: must be"):
        Rules(seconds=0.0)
    with pytest.raises(ValueError, match="seconds: must be"):
        Rules(seconds=float("nan"))
    with pytest.raises(ValueError, match="episodes: must be"):
        Rules(episodes=0)
    with pytest.raises(ValueError, match="never ends"):
        Rules(seconds=None)


def test_status_names_the_field() -> None:
    told = json.loads(
        '{"episode":1,"seed":2,"step":3,"reward":0.5,"sub_goals":{"coverage":1},"success":false,"done":false,"waiting":false,'
        '"stamp_ns":5,"mono_ns":6,"action":[1.5,2],"refused":{}}'
    )
    assert WorldStatus.from_dict(told).action == (1.5, 2.0)
    assert WorldStatus.from_dict({**told, "action": None}).action is None
    assert WorldStatus.from_dict(told).sub_goals == {"coverage": 1.0}
    for field in ("episode", "sub_goals", "mono_ns"):
        with pytest.raises(ValueError, match=f"status: {field}"):
            WorldStatus.from_dict({k: v for k, v in told.items() if k != field})
        with pytest.raises(ValueError, match=f"status: {field}"):
            WorldStatus.from_dict({**told, field: "x"})
    with pytest.raises(ValueError, match="status: success: expected bool"):
        WorldStatus.from_dict({**told, "success": "false"})
    for action in (["left"], ["1"], "12", [True]):
        with pytest.raises(ValueError, match="status: action"):
            WorldStatus.from_dict({**told, "action": action})
    with pytest.raises(ValueError, match="status: sub_goals: expected numbers"):
        WorldStatus.from_dict({**told, "sub_goals": {"coverage": "much"}})
