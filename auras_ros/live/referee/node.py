"""Wires the referee, the measures and the film to topics and services. It publishes nothing and decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.clock import SchedulerClock
from auras_ros.live.chunk_times import ChunkTimes, values_of
from auras_ros.live.referee.answers import COVERED, TableAnswers
from auras_ros.live.referee.episode import Rules, WorldStatus
from auras_ros.live.referee.film import Film
from auras_ros.live.referee.measures import Measures
from auras_ros.live.referee.referee import Call, Referee
from auras_ros.nodes.actuator.commands import DEADLINE_TICKS
from auras_ros.nodes.common.messages import read_action, read_chunk
from auras_ros.nodes.common.qos import IMAGES, LATCHED
from auras_ros.nodes.common.texts import MessageError, read_json
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import Duration, Future, Node, QoSProfile, ReliabilityPolicy, SubscriptionEventCallbacks
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import DiagnosticArray, Float64MultiArray, Image, String
from auras_ros.ros.srv import Trigger

STATE = "actuator/state"
ACTION, CHUNK, PROVENANCE, ANSWER = "action", "agent/chunk", "provenance", "answer"
FROM_AGENT = (PROVENANCE, Call.RESET_AGENT.value)  # the last to come: it loads and warms up the policy


class RefereeNode(Node):
    """Listens from the start; plays once `begin` was called. One thread: the caller spins it and calls `step`.

    world: the name of its bridge's node. contract: the checkpoint's action contract. rate_hz: the actuator's rate,
    which gives the deadline asked for. answers: takes what the node vlm says; None: it is not asked.
    """

    def __init__(
        self,
        world: str,
        contract: Any,
        rate_hz: float,
        film: Film | None,
        clock: SchedulerClock,
        answers: TableAnswers | None = None,
        **node_options: Any,
    ) -> None:
        super().__init__("referee", **node_options)
        self.measures = Measures()
        self.referee: Referee | None = None
        self.heard: set[str] = set()
        self.unreadable = 0
        self._lines = RepeatedLines()
        self.deadline_ms = DEADLINE_TICKS * 1000.0 / rate_hz
        self._contract, self._film, self._mono, self._answers = contract, film, clock, answers
        self._was_playing = False
        self._status: WorldStatus | None = None
        self._world_status = f"{world}/status"
        self._service_names = {call: call.value for call in Call} | {
            Call.RESET_WORLD: f"{world}/{Call.RESET_WORLD.value}"
        }
        self._calls = {call: self.create_client(Trigger, name) for call, name in self._service_names.items()}
        self._pending: tuple[Call, Future] | None = None
        self._listen()

    def _listen(self) -> None:
        reliable = ReliabilityPolicy.RELIABLE
        every = QoSProfile(depth=100, reliability=reliable)
        within = Duration(nanoseconds=round(self.deadline_ms * 1e6))
        deadline = QoSProfile(depth=100, reliability=reliable, deadline=within)
        events = SubscriptionEventCallbacks(deadline=self._on_deadline)
        refusing = self._refusing
        self.create_subscription(Float64MultiArray, ACTION, refusing(self._on_action), deadline, event_callbacks=events)
        self.create_subscription(DiagnosticArray, PROVENANCE, refusing(self._on_provenance), every)
        self.create_subscription(String, STATE, refusing(self._on_actuator), LATCHED)
        self.create_subscription(String, self._world_status, refusing(self._on_status), every)
        if self._answers is not None:
            self.create_subscription(String, ANSWER, refusing(partial(self._on_answered, self._answers)), every)
        if self._film is not None:
            self.create_subscription(Float64MultiArray, CHUNK, refusing(partial(self._on_chunk, self._film)), every)
            for camera in self._film.cameras:
                seen = partial(self._on_picture, self._film, camera)
                self.create_subscription(Image, image_topic(camera), refusing(seen), IMAGES)

    # -- what the caller does -----------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Topics not heard of yet, and services not there yet."""
        wanted = [self._world_status, STATE, PROVENANCE]
        wanted += [] if self._film is None else map(image_topic, self._film.cameras)
        wanted += [ANSWER] if self._answers is not None else []
        services = [self._service_names[call] for call, client in self._calls.items() if not client.service_is_ready()]
        return [topic for topic in wanted if topic not in self.heard] + services

    def begin(self, rules: Rules) -> Referee:
        self.referee = Referee(rules, self._mono.now_ns(), self._status)
        return self.referee

    def step(self) -> None:
        """Call after every callback: time limits, the next service call, the end of an episode."""
        if self.referee is None:
            return
        now_ns = self._mono.now_ns()
        self.referee.on_time(now_ns)
        call = self.referee.due(now_ns)
        if call is not None:
            self._ask(call)
        if self._was_playing and not self.referee.playing:
            self.measures.pause()
            if self._film is not None:
                self._film.cut()
        self._was_playing = self.referee.playing

    def finish(self) -> None:
        """No more callbacks will come: what is running counts as unfinished."""
        if self.referee is not None:
            self.referee.interrupt()
            self.step()

    def _ask(self, call: Call) -> None:
        if self._pending is not None:  # not answered in time: an answer that comes now belongs to the past
            self._calls[self._pending[0]].remove_pending_request(self._pending[1])
        future = self._calls[call].call_async(Trigger.Request())
        self._pending = call, future
        future.add_done_callback(lambda done: self._on_answer(call, done.result()))

    def _on_answer(self, call: Call, response: Any) -> None:
        self._pending = None
        if self.referee is not None and response is not None:
            self.referee.on_answer(call, response.success, response.message, self._mono.now_ns())

    # -- what arrives -------------------------------------------------------------------------------------

    @property
    def _playing(self) -> bool:
        return self.referee is not None and self.referee.playing

    def _refusing(self, take: Callable[[Any], None]) -> Callable[[Any], None]:
        """A callback for messages that are not trusted: one that cannot be read is counted and logged."""

        def taken(message: Any) -> None:
            try:
                take(message)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                self.unreadable += 1
                if line := self._lines.line("message", f"refused: {error}"):
                    self.get_logger().warning(line)

        return taken

    def _on_action(self, message: Float64MultiArray) -> None:
        _, label = read_action(message)
        numbers = (label.mono_ns, label.tick, 0 if label.age_ns is None else label.age_ns)
        if any(type(number) is not int for number in numbers):
            raise MessageError(f"action: mono_ns, tick, age_ns: expected integers, got {numbers}"[:200])
        if self._playing:
            self.measures.action(label.mono_ns, label.request, label.source, label.age_ns, label.tick)
        if self._film is not None:
            self._film.action(label.state, label.source, label.index, label.age_ns, label.request, label.mono_ns)

    def _on_provenance(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.message == "chunk":
                times = ChunkTimes.from_values(values_of(status))
                self.heard.add(PROVENANCE)
                if self._playing:
                    self.measures.chunk(times)

    def _on_actuator(self, message: String) -> None:
        fields = read_json(message.data, STATE)
        state, reason, sent_ns = str(fields["state"]), str(fields["reason"]), int(fields["mono_ns"])
        if self._playing:
            self.measures.actuator(fields)
        self.heard.add(STATE)
        if self.referee is not None:
            self.referee.on_actuator(state, reason, sent_ns, self._mono.now_ns())
        if self._film is not None:
            self._film.actuator(state)

    def _on_status(self, message: String) -> None:
        fields = read_json(message.data, self._world_status)
        status = self._status = WorldStatus.from_dict(fields)
        if self._playing:
            self.measures.world(fields)
        self.heard.add(self._world_status)
        referee = self.referee
        if referee is None:
            return
        playing = referee.playing
        if playing and self._answers is not None:
            self._answers.status(status.stamp_ns, status.sub_goals[COVERED])
        referee.on_status(status, self._mono.now_ns())
        if playing and self._film is not None:
            self._film.status(status, len(referee.episodes), referee.successes)

    def _on_answered(self, answers: TableAnswers, message: String) -> None:
        fields = read_json(message.data, ANSWER)
        self.heard.add(ANSWER)
        if self._playing:
            answers.answer(fields)
        if self._film is not None:
            self._film.answers = tuple(answers.newest.items())

    def _on_chunk(self, film: Film, message: Float64MultiArray) -> None:
        chunk = read_chunk(message, self._contract)
        film.chunk(chunk.provenance.request, chunk.actions)

    def _on_picture(self, film: Film, camera: str, message: Image) -> None:
        topic, at_ns = image_topic(camera), stamp_ns(message)
        image = rgb8(message, topic)
        self.heard.add(topic)
        if self._playing:
            self.measures.picture(camera, at_ns)
        film.picture(camera, at_ns, image)

    def _on_deadline(self, info: Any) -> None:
        if self._playing:
            self.measures.deadlines_missed(info.total_count_change, self._mono.now_ns())


def image_topic(camera: str) -> str:
    return f"camera/{camera}/image_raw"


def rgb8(message: Image, topic: str) -> NDArray[np.uint8]:
    """The picture of an rgb8 message [height, width, 3], a view. Raises ValueError if it is not one without padding."""
    data: NDArray[np.uint8] = np.frombuffer(message.data, dtype=np.uint8)
    shape = (message.height, message.width, 3)
    if message.encoding != "rgb8" or message.step != 3 * message.width or data.size != np.prod(shape) or not data.size:
        size = f"{message.width}x{message.height}"
        raise ValueError(f"{topic}: expected rgb8 without padding, got {message.encoding} {size}")
    return data.reshape(shape)
