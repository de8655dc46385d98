"""Brings a lifecycle node up whenever `ros2 launch` starts its process: configure, then activate.

Used by `launching` alone, because it needs `launch` and `launch_ros` as well. The launch file's own node sends the
requests. It does not use launch_ros's `ChangeState` event, which sends a request once and waits for ever for the
answer. A request can be lost: after a kill the middleware knows the dead process's service until its lease ends (10 s
and more), and on a busy machine the new process may know one half of a service only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from launch.actions import LogInfo, OpaqueFunction, RegisterEventHandler, TimerAction
from launch.event_handlers import OnProcessExit, OnProcessStart
from launch_ros.event_handlers import OnStateTransition
from launch_ros.ros_adapters import get_ros_node
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState

from auras_ros.output import escaped

RETRY_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # between requests of a transition, and after failures
POLL_S = 0.2  # between two looks at the answers
QUESTION_PERIOD_S = 1.0
MAX_OPEN_QUESTIONS = 10  # the depth of a service's queue
REPORT_AFTER_S = 60.0  # without the expected state: then one log line, and the slower period from there on
SLOW_POLL_S = 5.0


@dataclass(frozen=True)
class Step:
    """A transition and the states around it, by ROS 2's labels."""

    verb: str
    transition_id: int
    state_before: str
    state_during: str
    state_after: str


CONFIGURE = Step("configure", Transition.TRANSITION_CONFIGURE, "unconfigured", "configuring", "inactive")
ACTIVATE = Step("activate", Transition.TRANSITION_ACTIVATE, "inactive", "activating", "active")


class Attempt:
    """One step of one process. Asks the node for its state, and sends the request again while nothing changes."""

    def __init__(self, step: Step, clients: Clients) -> None:
        self.step = step
        self.began_s = monotonic()
        self.last_state = ""  # empty: the node has not answered yet
        self.is_reported = False
        self._clients = clients
        self._questions: deque[Any] = deque()
        self._question_due_s = self.began_s
        self._request: Any = None
        self.request_count = 0

    def request_transition(self) -> None:
        """Send the request. Answers to earlier questions are dropped, because they are older than it."""
        delay_s = RETRY_DELAYS_S[min(self.request_count, len(RETRY_DELAYS_S) - 1)]
        self.close()
        self._request = self._clients.request(self.step.transition_id)
        self.request_count += 1
        self._question_due_s = monotonic() + delay_s

    def ask_when_due(self) -> None:
        """Ask for the state if the last question is old enough. Late answers to earlier questions count too."""
        if monotonic() < self._question_due_s or not self._clients.state_is_ready():
            return
        if len(self._questions) == MAX_OPEN_QUESTIONS:
            self._clients.forget_question(self._questions.popleft())
        self._questions.append(self._clients.ask_state())
        is_busy = self.last_state == self.step.state_during
        self._question_due_s = monotonic() + (SLOW_POLL_S if is_busy else QUESTION_PERIOD_S)

    def take_answer(self) -> str:
        """The state that the node has answered since the last call; empty if there is no answer."""
        state = ""
        for question in [question for question in self._questions if question.done()]:
            self._questions.remove(question)
            if question.exception() is None and question.result() is not None:
                state = question.result().current_state.label
        self.last_state = state or self.last_state
        return state

    def close(self) -> None:
        """Forget what was asked and not answered."""
        while self._questions:
            self._clients.forget_question(self._questions.pop())
        if self._request is not None:
            self._clients.forget_request(self._request)
            self._request = None

    def report(self, node_name: str) -> str:
        """What the log says of a node that does not reach the state."""
        elapsed_s = monotonic() - self.began_s
        step = self.step
        if self.last_state == step.state_during:
            return f"{node_name} is still {step.state_during} after {elapsed_s:.0f} s: see its own messages; waiting"
        heard = (
            f"its last answer: {escaped(self.last_state)}"
            if self.last_state
            else "it answers no question for its state"
        )
        return (
            f"{node_name} is not {step.state_after} after {elapsed_s:.0f} s; {heard}; requests to {step.verb}: "
            f"{self.request_count}. It is asked again every {SLOW_POLL_S:.0f} s. See its own messages; if the machine "
            f"is not busy, end the process, or try: ros2 lifecycle set {node_name} {step.verb}"
        )


class Clients:
    """The launch file's clients of one lifecycle node's services."""

    def __init__(self, ros_node: Any, node_name: str) -> None:
        self._get_state = ros_node.create_client(GetState, f"{node_name}/get_state")
        self._change_state = ros_node.create_client(ChangeState, f"{node_name}/change_state")

    def state_is_ready(self) -> bool:
        return bool(self._get_state.service_is_ready())

    def ask_state(self) -> Any:
        return self._get_state.call_async(GetState.Request())

    def forget_question(self, future: Any) -> None:
        self._get_state.remove_pending_request(future)

    def request(self, transition_id: int) -> Any:
        request = ChangeState.Request()
        request.transition.id = transition_id
        return self._change_state.call_async(request)

    def forget_request(self, future: Any) -> None:
        self._change_state.remove_pending_request(future)


class BringUp:
    """Configures a lifecycle node whenever its process starts, and activates it when it has been configured.

    An answer to a question for its state can only come from the living process. It also means that this process knows
    our subscription to its transition events, which launch_ros creates before our clients: from then on no event is
    lost. Therefore a start begins with that question, and what follows is decided by the events; questions and
    repeated requests are for what gets lost before.

    A node that someone deactivates remains inactive. If its settings are refused it remains unconfigured; if the
    machine is too slow for them, or configuring fails, it is configured again after a growing delay.
    """

    def __init__(self, node: Any) -> None:
        self._node = node
        self._clients: Clients | None = None
        self._attempt: Attempt | None = None
        self._life = 0
        self._failed_configures = 0

    def handlers(self) -> list[Any]:
        """To be returned before the node's own action."""
        reactions: list[tuple[str, str | None, Callable[[Any], list[Any]]]] = [
            ("unconfigured", "configuring", self._on_configuring),
            ("configuring", "inactive", self._on_configured),
            ("configuring", "unconfigured", self._on_refused),
            ("configuring", "errorprocessing", self._on_failed),
            ("activating", None, self._on_activation_ended),
        ]
        handlers = [
            OnProcessStart(target_action=self._node, on_start=self._on_start),
            OnProcessExit(target_action=self._node, on_exit=self._on_exit),
        ]
        for start_state, goal_state, react in reactions:
            handlers.append(
                OnStateTransition(
                    target_lifecycle_node=self._node,
                    start_state=start_state,
                    goal_state=goal_state,
                    entities=[OpaqueFunction(function=react)],
                )
            )
        return [RegisterEventHandler(handler) for handler in handlers]

    # -- what happens to the process ----------------------------------------------------------------------

    def _on_start(self, event: Any, context: Any) -> list[Any]:
        self._life += 1
        return self._begin(context, CONFIGURE)

    def _on_exit(self, event: Any, context: Any) -> list[Any]:
        self._life += 1
        self._end()
        return []

    def _on_configuring(self, context: Any) -> list[Any]:
        if self._attempt is not None and self._attempt.step is CONFIGURE:
            self._attempt.last_state = CONFIGURE.state_during
        return []

    def _on_configured(self, context: Any) -> list[Any]:
        if self._attempt is not None and self._attempt.step is ACTIVATE:
            return []  # an answer had said so before the event did
        self._failed_configures = 0
        return self._begin(context, ACTIVATE)

    def _on_refused(self, context: Any) -> list[Any]:
        self._end()
        name = self._node.node_name
        remedy = f"see its own message; once that is mended: ros2 lifecycle set {name} configure"
        return [LogInfo(msg=f"{name} was not configured, {remedy}")]

    def _on_failed(self, context: Any) -> list[Any]:
        self._end()
        delay_s = RETRY_DELAYS_S[min(self._failed_configures, len(RETRY_DELAYS_S) - 1)]
        self._failed_configures += 1
        begin = OpaqueFunction(function=self._configure_again, args=[self._life])
        return [TimerAction(period=delay_s, actions=[begin])]

    def _configure_again(self, context: Any, life: int) -> list[Any]:
        return self._begin(context, CONFIGURE) if life == self._life else []

    def _on_activation_ended(self, context: Any) -> list[Any]:
        self._end()
        return []

    # -- one step -----------------------------------------------------------------------------------------

    def _begin(self, context: Any, step: Step) -> list[Any]:
        self._end()
        if context.is_shutdown:
            return []
        if self._clients is None:
            self._clients = Clients(get_ros_node(context), self._node.node_name)
        self._attempt = Attempt(step, self._clients)
        if step is ACTIVATE:  # the node has just said that it is inactive
            self._attempt.request_transition()
        return self._look(context, self._attempt)

    def _end(self) -> None:
        if self._attempt is not None:
            self._attempt.close()
        self._attempt = None

    def _look(self, context: Any, attempt: Attempt) -> list[Any]:
        """Look at the answers, ask and request what is due, and look again later."""
        if attempt is not self._attempt or context.is_shutdown:
            return []
        step = attempt.step
        state = attempt.take_answer()
        if state == step.state_before:
            attempt.request_transition()
        elif state == step.state_after:  # its event was lost
            return self._on_configured(context) if step is CONFIGURE else self._on_activation_ended(context)
        elif state not in ("", step.state_during, "errorprocessing"):  # somebody else has moved it, or it has failed
            self._end()
            return [LogInfo(msg=f"{self._node.node_name} is {escaped(state)}: it is left so")]
        attempt.ask_when_due()
        actions: list[Any] = []
        if not attempt.is_reported and monotonic() - attempt.began_s >= REPORT_AFTER_S:
            attempt.is_reported = True
            actions.append(LogInfo(msg=attempt.report(self._node.node_name)))
        look_again = OpaqueFunction(function=self._look, args=[attempt])
        period_s = SLOW_POLL_S if attempt.is_reported else POLL_S
        return [*actions, TimerAction(period=period_s, actions=[look_again])]
