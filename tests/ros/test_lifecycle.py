"""The life cycle: rcl's states and transitions to the number, and a managed node asked from another process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partialmethod
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds.lifecycle_machine import STATES, TRANSITIONS, RCLError, StateMachine
from auras_ros.ros.msg import ParameterMsg, ParameterValue, State, String, Transition, TransitionEvent
from auras_ros.ros.srv import ChangeState, GetAvailableStates, GetAvailableTransitions, GetState, SetParameters

SpinUntil = Callable[[Callable[[], Any]], None]
Return = ros.TransitionCallbackReturn
PREFIX = "/test/managed"


def test_states_have_the_numbers_of_their_message() -> None:
    named = {name.rpartition("STATE_")[2].lower(): getattr(State, name) for name in dir(State) if "STATE_" in name}
    assert {label: state.id for label, state in STATES.items()} == named
    assert len(STATES) == 11


def test_transitions_have_the_numbers_and_goals_of_rcl() -> None:
    """Numbers from the message's constants; start, goal and label as rcl's default state machine registers them."""
    by_id = {t.id: (t.start.label, t.label, t.goal.label) for t in TRANSITIONS}
    assert len(by_id) == len(TRANSITIONS) == 25
    error = "errorprocessing"
    for name, start, success, failure in (
        ("CONFIGURE", "configuring", "inactive", "unconfigured"),
        ("CLEANUP", "cleaningup", "unconfigured", "inactive"),
        ("ACTIVATE", "activating", "active", "inactive"),
        ("DEACTIVATE", "deactivating", "inactive", "active"),
        ("SHUTDOWN", "shuttingdown", "finalized", "finalized"),
        ("ERROR", error, "unconfigured", "finalized"),
    ):
        goals = (success, failure, "finalized" if name == "ERROR" else error)
        for outcome, goal in zip(("SUCCESS", "FAILURE", "ERROR"), goals, strict=True):
            expected = (start, f"transition_{outcome.lower()}", goal)
            assert by_id.pop(getattr(Transition, f"TRANSITION_ON_{name}_{outcome}")) == expected
    assert by_id == {
        Transition.TRANSITION_CONFIGURE: ("unconfigured", "configure", "configuring"),
        Transition.TRANSITION_CLEANUP: ("inactive", "cleanup", "cleaningup"),
        Transition.TRANSITION_ACTIVATE: ("inactive", "activate", "activating"),
        Transition.TRANSITION_DEACTIVATE: ("active", "deactivate", "deactivating"),
        Transition.TRANSITION_UNCONFIGURED_SHUTDOWN: ("unconfigured", "shutdown", "shuttingdown"),
        Transition.TRANSITION_INACTIVE_SHUTDOWN: ("inactive", "shutdown", "shuttingdown"),
        Transition.TRANSITION_ACTIVE_SHUTDOWN: ("active", "shutdown", "shuttingdown"),
    }


def test_callback_answers_have_the_numbers_of_their_message() -> None:
    for answer in Return:
        assert answer.value == getattr(Transition, f"TRANSITION_CALLBACK_{answer.name}")


def test_a_transition_that_the_state_lacks_changes_nothing() -> None:
    seen: list[Any] = []
    machine = StateMachine(seen.append)
    for refused in (3, "x", "transition_success"):
        with pytest.raises(RCLError, match=r"from state unconfigured; it has: configure \(1\), shutdown \(5\)"):
            machine.trigger(refused)
    assert machine.current_state == (1, "unconfigured")
    assert seen == []


class Scripted(ros.LifecycleNode):
    """Answers what the test lays down for a callback, and remembers who was called from which state."""

    def __init__(self, **options: Any) -> None:
        self.script: dict[str, Any] = {}
        self.calls: list[tuple[str, str]] = []
        super().__init__("scripted", **options)

    def _answer(self, callback: str, state: ros.LifecycleState) -> Return:
        self.calls.append((callback, state.label))
        what = self.script.get(callback)
        if isinstance(what, Exception):
            raise what
        return super().on_configure(state) if what is None else what

    on_configure = partialmethod(_answer, "on_configure")  # type: ignore[assignment]
    on_cleanup = partialmethod(_answer, "on_cleanup")  # type: ignore[assignment]
    on_shutdown = partialmethod(_answer, "on_shutdown")  # type: ignore[assignment]
    on_activate = partialmethod(_answer, "on_activate")  # type: ignore[assignment]
    on_deactivate = partialmethod(_answer, "on_deactivate")  # type: ignore[assignment]
    on_error = partialmethod(_answer, "on_error")  # type: ignore[assignment]


def label(node: ros.LifecycleNode) -> str:
    return node._state_machine.current_state[1]


@pytest.fixture
def scripted(context: ros.Context) -> Scripted:
    return Scripted(context=context)


def test_a_whole_life(scripted: Scripted) -> None:
    steps = [("configure", "inactive"), ("activate", "active"), ("deactivate", "inactive"), ("cleanup", "unconfigured"),
             ("configure", "inactive"), ("activate", "active"), ("shutdown", "finalized")]  # fmt: skip
    for step, after in steps:
        assert getattr(scripted, f"trigger_{step}")() == Return.SUCCESS
        assert label(scripted) == after
    assert scripted.calls[-1] == ("on_shutdown", "active")
    assert scripted.trigger_shutdown() is None
    with pytest.raises(RuntimeError, match="from state finalized; it has: none"):
        scripted.trigger_configure()


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [("configure", [], "unconfigured"), ("activate", ["configure"], "inactive"), ("cleanup", ["configure"], "inactive"),
     ("deactivate", ["configure", "activate"], "active"), ("shutdown", [], "finalized")],
)  # fmt: skip
def test_a_failure_goes_back_and_asks_no_error_callback(
    scripted: Scripted, step: str, before: list[str], after: str
) -> None:
    for each in before:
        getattr(scripted, f"trigger_{each}")()
    scripted.script[f"on_{step}"] = Return.FAILURE
    assert getattr(scripted, f"trigger_{step}")() == Return.FAILURE
    assert label(scripted) == after
    assert "on_error" not in dict(scripted.calls)


@pytest.mark.parametrize(
    ("on_error", "after"),
    [(Return.SUCCESS, "unconfigured"), (Return.FAILURE, "finalized"), (Return.ERROR, "finalized"),
     (ValueError("again"), "finalized")],
)  # fmt: skip
@pytest.mark.parametrize("step", ["configure", "shutdown"])
def test_an_error_is_processed(scripted: Scripted, capfd: Any, step: str, on_error: Any, after: str) -> None:
    scripted.script = {f"on_{step}": ValueError("told to"), "on_error": on_error}
    assert getattr(scripted, f"trigger_{step}")() == Return.ERROR
    assert label(scripted) == after
    assert scripted.calls[-1] == ("on_error", "unconfigured")
    printed = capfd.readouterr().err
    assert f"on_{step} raised" in printed
    assert "Traceback" in printed
    assert "ValueError: told to" in printed
    assert ("ValueError: again" in printed) is isinstance(on_error, Exception)


def test_an_answer_that_is_none_counts_as_error(scripted: Scripted, capfd: Any) -> None:
    scripted.script["on_configure"] = "done"
    assert scripted.trigger_configure() == Return.ERROR
    assert label(scripted) == "unconfigured"
    assert "on_configure returned 'done'" in capfd.readouterr().err


def test_a_second_transition_during_the_first_is_refused(scripted: Scripted) -> None:
    """From the callback itself and from another thread: the node is on its way, and stays on it."""
    refusals: list[str] = []

    def try_it() -> None:
        try:
            scripted.trigger_activate()
        except RuntimeError as error:
            refusals.append(str(error))

    def on_configure(state: ros.LifecycleState) -> Return:
        try_it()
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
        return Return.SUCCESS

    scripted.on_configure = on_configure  # type: ignore[method-assign]
    assert scripted.trigger_configure() == Return.SUCCESS
    assert label(scripted) == "inactive"
    assert len(refusals) == 2
    assert all("from state configuring" in text for text in refusals)


def test_without_the_communication_interface_nobody_can_ask(context: ros.Context) -> None:
    quiet = Scripted(context=context, enable_communication_interface=False, start_parameter_services=False)
    assert list(quiet.services) == []
    assert quiet.trigger_configure() == Return.SUCCESS


def test_a_transition_after_the_context_ended(context: ros.Context) -> None:
    """A node may finish its life on the way out: the event has nobody to go to, and that is no error."""
    late = Scripted(context=context)
    ros.shutdown(context=context)
    assert late.trigger_shutdown() == Return.SUCCESS
    assert label(late) == "finalized"


@pytest.fixture
def change(call: Any) -> Callable[[str], bool]:
    def ask(name: str) -> bool:
        return bool(call(ChangeState, f"{PREFIX}/change_state", transition=Transition(label=name)).success)

    return ask


def state_of(call: Any) -> str:
    return str(call(GetState, f"{PREFIX}/get_state").current_state.label)


def answers(call: Any, **script: str) -> None:
    value = ParameterValue(type=4, string_value=json.dumps(script))
    made = call(SetParameters, f"{PREFIX}/set_parameters", parameters=[ParameterMsg(name="answers", value=value)])
    assert made.results[0].successful


def test_a_node_is_led_through_its_life_by_another_process(
    node: ros.Node, spawn: Any, spin_until: SpinUntil, call: Any, change: Any
) -> None:
    """What `ros2 lifecycle set/get/list` and a launch file's events do; each transition is told in two events."""
    spawn("managed")
    events: list[tuple[str, str, str]] = []
    always: list[str] = []
    node.create_subscription(
        TransitionEvent, f"{PREFIX}/transition_event",
        lambda m: events.append((m.start_state.label, m.transition.label, m.goal_state.label)), 20,
    )  # fmt: skip
    node.create_subscription(String, f"{PREFIX}/always", lambda m: always.append(m.data), 10)
    spin_until(lambda: node.count_publishers(f"{PREFIX}/transition_event") == 1 and always)
    assert state_of(call) == "unconfigured"
    assert not change("activate")
    assert not call(ChangeState, f"{PREFIX}/change_state", transition=Transition(id=200)).success
    assert change("configure")
    assert change("activate")
    assert call(ChangeState, f"{PREFIX}/change_state", transition=Transition(id=4)).success  # deactivate, by number
    assert state_of(call) == "inactive"
    assert change("cleanup")
    assert change("shutdown")
    assert state_of(call) == "finalized"
    spin_until(lambda: len(events) == 10)
    asked = [("unconfigured", "configure", "configuring"), ("inactive", "activate", "activating"),
             ("active", "deactivate", "deactivating"), ("inactive", "cleanup", "cleaningup"),
             ("unconfigured", "shutdown", "shuttingdown")]  # fmt: skip
    assert events[::2] == asked
    assert [(label, goal) for _, label, goal in events[1::2]] == [
        ("transition_success", goal) for goal in ("inactive", "active", "inactive", "unconfigured", "finalized")
    ]


def test_errors_in_another_process_leave_it_answering(spawn: Any, call: Any, change: Any) -> None:
    child = spawn("managed")
    answers(call, on_configure="raise")
    assert not change("configure")
    assert state_of(call) == "unconfigured"
    answers(call, on_configure="nonsense")
    assert not change("configure")
    answers(call, on_activate="FAILURE", on_cleanup="raise", on_error="raise")
    assert change("configure")
    assert not change("activate")
    assert state_of(call) == "inactive"
    assert not change("cleanup")
    assert state_of(call) == "finalized"
    child.terminate()
    _, errors = child.communicate(timeout=20)
    assert "RuntimeError: on_configure was told to raise" in errors
    assert "RuntimeError: on_error was told to raise" in errors


def test_what_is_available_is_told(spawn: Any, call: Any, change: Any) -> None:
    spawn("managed")
    available = f"{PREFIX}/get_available_transitions"
    states = call(GetAvailableStates, f"{PREFIX}/get_available_states").available_states
    assert {state.label: state.id for state in states} == {label: state.id for label, state in STATES.items()}
    now = call(GetAvailableTransitions, available).available_transitions
    assert [(t.transition.id, t.transition.label) for t in now] == [(1, "configure"), (5, "shutdown")]
    assert change("configure")
    now = call(GetAvailableTransitions, available).available_transitions
    assert [t.transition.label for t in now] == ["cleanup", "activate", "shutdown"]
    graph = call(GetAvailableTransitions, f"{PREFIX}/get_transition_graph").available_transitions
    assert [(t.transition.id, t.start_state.label, t.goal_state.label) for t in graph] == [
        (t.id, t.start.label, t.goal.label) for t in TRANSITIONS
    ]
