"""The node while it is active: takes questions, hands them to the engine, and publishes what it answers.

A question gets the newest image when it is asked. Its prompt is made in a thread for all questions, in their order, so
that neither messages nor the engine wait for it; a thread of its own then waits for the answer. However it ends, one
answer is published, which says why; after `halt` none.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.checkpoints.vlm.pictures import PictureError
from auras_ros.clock import MonotonicClock
from auras_ros.engine.engine import Engine
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import EngineClosedError, EngineFullError, InvalidRequestError, VlmRequest
from auras_ros.nodes.vlm.answers import REFUSED, AnswerEnd, AnswerPublishers, AskedQuestion
from auras_ros.nodes.vlm.cameras import CameraImage, CameraInputs
from auras_ros.nodes.vlm.loading import conversation
from auras_ros.nodes.vlm.question import Question
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.nodes.vlm.standing import Standing
from auras_ros.observation import ObservationError

PREPARING = "preparation"
LEAST_MS = 1e-3  # left to a question whose time has passed: the engine ends it as such
REFUSALS = (EngineClosedError, EngineFullError, InvalidRequestError, ObservationError, PictureError, PromptError)


class Answering:
    """guarded(what): a context that catches and logs what publishing raises. news: called in any thread when the first
    question is refused. `open`, `ask`, `refuse` and `halt` are called in the executor's thread, all else in any."""

    def __init__(
        self,
        engine: Engine,
        settings: VlmSettings,
        cameras: CameraInputs,
        publishers: AnswerPublishers,
        guarded: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._engine, self._settings, self._cameras = engine, settings, cameras
        self._publishers, self._guarded = publishers, guarded
        self._monotonic = MonotonicClock()
        self._lock = threading.Lock()  # for what is below, and for publishing
        self._open: set[AskedQuestion] = set()
        self._halted = False
        self._unready: set[AskedQuestion] = set()  # whose prompts are yet to be made
        self._preparing_ns = 0  # since when one is being made
        self._preparation = ThreadPoolExecutor(1, "questions")
        self.standing = [Standing(each) for each in settings.standing_questions()]
        self.ended: Counter[str] = Counter()
        self.refusal = ""  # of the newest question, if it was refused
        self.newest: tuple[AskedQuestion, AnswerEnd] | None = None  # that was answered

    def open(self) -> None:
        """Take images from now on, and ask the standing questions."""
        self._cameras.open(self._on_new_image)

    def halt(self) -> None:
        """Cancel every question, say so, and publish nothing from now on. A forward that runs is not waited for."""
        self._cameras.shut()
        with self._lock:
            now_ns = self._monotonic.now_ns()
            for asked in self._open:
                self._publish(asked, "".join(asked.parts), AnswerEnd("cancelled", "the node was deactivated", now_ns))
                if asked.reply is not None:
                    asked.reply.cancel()
            self._halted = True
        self._preparation.shutdown(wait=False, cancel_futures=True)

    def broken(self) -> bool:
        """Never: an engine that failed refuses questions, and can be cleaned up and configured again."""
        return False

    def under_way(self) -> dict[str, int]:
        """Forwards and the making of a prompt -> since when."""
        since_ns = self._preparing_ns
        found = {PREPARING: since_ns} if since_ns else dict[str, int]()
        found.update(self._engine.under_way().items())
        return found

    @property
    def open_questions(self) -> int:
        return len(self._open)

    def ask(self, question: Question, standing: Standing | None = None) -> None:
        """Answer it, or publish why not."""
        asked_ns, reason, images = self._monotonic.now_ns(), "", tuple[CameraImage, ...]()
        try:
            if question.camera:
                images = self._cameras.frames(question.camera, question.frames, question.stride)
        except ObservationError as error:
            reason = str(error)
        name = question.id or uuid.uuid4().hex[:12]
        if standing is not None:
            name = standing.asks()
        asked = AskedQuestion(question, name, standing.name if standing else "", images, asked_ns)
        with self._lock:
            limit = self._settings.running + self._settings.waiting
            if not reason and len(self._unready) >= limit:
                reason = f"the engine is full: {limit} questions are being prepared"
            self._open.add(asked)
            self._unready.add(asked)
        if reason:
            self._end(asked, standing, AnswerEnd(REFUSED, reason, asked_ns))
            return
        try:
            submitted = self._preparation.submit(self._submit, asked)
            threading.Thread(target=self._follow, args=(asked, standing, submitted), name="answer", daemon=True).start()
        except RuntimeError as error:  # the machine has no more threads
            self._end(asked, standing, AnswerEnd("error", str(error), asked_ns))

    def refuse(self, name: str, text: str, reason: str) -> None:
        """Publish why a message is no question."""
        self.ended[REFUSED] += 1
        self.refusal = reason
        with self._guarded("publishing an answer"):
            self._publishers.refused(name, text, reason)

    def _on_new_image(self, camera: str) -> None:
        for standing in self.standing:
            if standing.question.camera == camera and standing.due():
                self.ask(standing.question, standing)

    def _submit(self, asked: AskedQuestion) -> Reply:
        """In the thread of `_preparation`. Raises one of REFUSALS."""
        self._preparing_ns = self._monotonic.now_ns()
        try:
            images = [each.item() for each in asked.images]
            if images:
                asked.size = images[-1].shape[0], images[-1].shape[1]
            turns = conversation(self._settings.system, asked.question.text, len(images))
            prompt = self._engine.checkpoint.prompts.chat(turns, images)
            default = min(self._settings.max_tokens, max(self._engine.length - len(prompt.ids), 1))
            return self._engine.submit(
                VlmRequest(
                    prompt,
                    self._engine.checkpoint.sampling,
                    max_tokens=asked.question.max_tokens or default,
                    deadline_ms=self._time_left_ms(asked),
                    priority=asked.question.priority,
                    adapter=asked.question.adapter,
                    head=asked.question.head,
                )
            )
        finally:
            self._preparing_ns = 0
            with self._lock:
                self._unready.discard(asked)

    def _time_left_ms(self, asked: AskedQuestion) -> float | None:
        """Until its deadline, or until its image gets too old."""
        now_ns, limits = self._monotonic.now_ns(), []
        if asked.question.deadline_ms is not None:
            limits.append(asked.question.deadline_ms - (now_ns - asked.asked_ns) / 1e6)
        if asked.image is not None and self._settings.max_age_ms:
            limits.append(self._settings.max_age_ms - (now_ns - asked.image.mono_ns) / 1e6)
        return max(LEAST_MS, min(limits)) if limits else None

    def _follow(self, asked: AskedQuestion, standing: Standing | None, submitted: Future[Reply]) -> None:
        """In a thread of its own: until the answer has ended."""
        try:
            end = self._answered(asked, submitted.result())
        except REFUSALS as error:
            end = AnswerEnd(REFUSED, str(error), self._monotonic.now_ns())
        except Exception as error:  # noqa: BLE001  (whatever it is, the question is answered with it)
            end = AnswerEnd("error", repr(error), self._monotonic.now_ns())
        self._end(asked, standing, end)

    def _answered(self, asked: AskedQuestion, reply: Reply) -> AnswerEnd:
        with self._lock:
            asked.reply = reply
            if self._halted:
                reply.cancel()
        for index, piece in enumerate(reply):
            with self._lock:
                asked.parts.append(piece.text)
                if asked.question.stream and not self._halted:
                    with self._guarded("publishing a piece of an answer"):
                        self._publishers.piece(asked, index, piece.text, piece.finish)
        answer = reply.result()
        ended_ns = answer.usage.timings.ended_ns
        return AnswerEnd(answer.finish, answer.detail, ended_ns, answer.usage, len(answer.tokens), answer.result)

    def _end(self, asked: AskedQuestion, standing: Standing | None, end: AnswerEnd) -> None:
        with self._lock:
            self._open.discard(asked)
            self._unready.discard(asked)
            if standing:
                standing.ended()
            if not self._halted:
                self._publish(asked, "".join(asked.parts), end)

    def _publish(self, asked: AskedQuestion, text: str, end: AnswerEnd) -> None:
        """Count it too."""
        self.ended[end.finish] += 1
        self.refusal = end.detail if end.finish == REFUSED else ""
        if end.usage is not None:
            self.newest = asked, end
        with self._guarded("publishing an answer"):
            self._publishers.answer(asked, text, end)
        with self._guarded("publishing detections"):
            self._publishers.boxes(asked, end)
