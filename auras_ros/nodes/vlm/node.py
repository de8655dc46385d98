"""A vision-language model as a node: questions and the newest images in, answers with their provenance out.

A lifecycle node, as the agent is, in a process of its own. It moves nothing, and nobody depends on it. The ROS
executor's thread takes messages; the engine's threads answer; the heartbeat reports what hangs and ends the process.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NoReturn

from auras_ros.heap import TENSOR_BLOCK
from auras_ros.nodes.common.config import check_given
from auras_ros.nodes.common.loaded_node import STALL_S, SUCCESS, LoadedNode
from auras_ros.nodes.common.texts import MessageError
from auras_ros.nodes.vlm.answering import Answering
from auras_ros.nodes.vlm.answers import AnswerPublishers
from auras_ros.nodes.vlm.configured import ConfiguredVlm
from auras_ros.nodes.vlm.loading import BAD_SETTINGS_ERRORS, TOLD_ERRORS, load_engine, set_adapters
from auras_ros.nodes.vlm.question import question_fields, read_question
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.nodes.vlm.status import VlmStatus, resource_usage
from auras_ros.parameters import ParameterError
from auras_ros.repeated_lines import RepeatedLines
from auras_ros.ros import LifecycleState, Parameter, TransitionCallbackReturn
from auras_ros.ros.callbacks import failures_of
from auras_ros.ros.msg import SetParametersResult
from auras_ros.ros.process import leave, run_node
from auras_ros.ros.settings import refusal

SHOWN_CHARACTERS = 80


class VlmNode(LoadedNode):
    """`asked`: not empty any more when the process should end; configure then aborts."""

    NAME: ClassVar[str] = "vlm"
    SETTINGS: ClassVar[type[Any]] = VlmSettings
    BAD_SETTINGS_ERRORS: ClassVar[tuple[type[Exception], ...]] = BAD_SETTINGS_ERRORS
    TOLD_ERRORS: ClassVar[tuple[type[Exception], ...]] = TOLD_ERRORS

    def __init__(self, asked: Sequence[int] = (), **node_options: Any) -> None:
        self.status = VlmStatus(uuid.uuid4().hex[:12])
        self._anywhere = frozenset(os.sched_getaffinity(0))
        super().__init__(self.status, asked, **node_options)
        self._answers = AnswerPublishers(self._qos)
        self._lines = RepeatedLines()

    # -- the life (executor thread) -----------------------------------------------------------------------

    def _configure(self, settings: VlmSettings) -> bool:
        session, began_ns = self._new_session(), self._monotonic.now_ns()
        self.get_logger().info(f"loading {settings.checkpoint}")
        engine = self._load(partial(load_engine, settings, self._anywhere))
        if engine is None:
            return False
        self.status.configured = ConfiguredVlm(
            self, settings, engine, self._qos, self._on_question, self._refuse_question
        )
        self.status.checkpoint = engine.checkpoint.digest
        model = {"name": engine.checkpoint.name, "digest": engine.checkpoint.digest}
        self._answers.detections = self.status.configured.detections
        self._answers.origin = {"session": session, "model": model, "stamps": str(settings.stamp_rule())}
        self.status.resources = resource_usage(engine, (self._monotonic.now_ns() - began_ns) / 1e6)
        self.get_logger().info(", ".join(f"{key} {text}" for key, text in self.status.resources.items()))
        return True

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        configured = self.status.configured
        if configured is None:
            return TransitionCallbackReturn.ERROR
        self._set_state("activating")
        self._heartbeat.frames_begin(round(configured.settings.late_ms * 1e6))
        guarded = partial(failures_of(self).guarded, say=self.get_logger().error)
        answering = Answering(configured.engine, configured.settings, configured.cameras, self._answers, guarded)
        answering.open()
        self.status.answering = answering
        self._set_state("active")
        return SUCCESS

    def _stop(self, timeout_s: float = STALL_S) -> bool:
        answering, self.status.answering = self.status.answering, None
        if answering is not None:
            answering.halt()
        return True

    def _close(self) -> None:
        configured, self.status.configured = self.status.configured, None
        self._answers.detections = None
        if configured is not None:
            configured.close()

    # -- adapters (executor thread) -----------------------------------------------------------------------

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        """`loras` is changed at once where a model is configured. The files are read here: until then messages wait,
        and answers go on."""
        loras = [each for each in parameters if each.name == "loras"]
        result = super()._on_set([each for each in parameters if each.name != "loras"])
        if not result.successful:
            return result
        for each in loras:
            if reason := refusal(self, VlmSettings, each) or self._change_adapters(each.value):
                return SetParametersResult(successful=False, reason=reason)
        return result

    def _change_adapters(self, loras: str) -> str:
        """Why they may not be so, as other nodes are told it; empty if they may, and are now."""
        configured = self.status.configured
        if configured is None and self.status.lifecycle != "unconfigured":
            return f"vlm: loras: the vlm is {self.status.lifecycle}"
        try:
            wanted = replace(VlmSettings(), loras=loras).adapter_folders()
            if configured is not None:
                set_adapters(configured.engine, wanted)
        except (ParameterError, OSError) as error:
            return self._told(error)
        return ""

    # -- questions (executor thread) ----------------------------------------------------------------------

    def _on_question(self, text: str) -> None:
        configured, answering, fields = self.status.configured, self.status.answering, dict[str, Any]()
        if configured is None:
            return
        settings = configured.settings
        try:
            fields = {"camera": settings.camera, **question_fields(text, settings.question_limit_bytes)}
            question = read_question(fields, settings.camera_names(), settings.question_limit_bytes)
            if answering is None:
                raise MessageError(f"the node is {self.status.lifecycle}")
            answering.ask(question)
        except MessageError as error:
            name = fields.get("id")
            self._refuse_question(error, name[:SHOWN_CHARACTERS] if isinstance(name, str) else "", text)

    def _refuse_question(self, error: ValueError, name: str = "", text: str = "") -> None:
        """Publish why a message is no question. name: its id, where that could be read; text: what could be read."""
        if line := self._lines.line("question", f"refused: {error}"):
            self.get_logger().warning(line)
        answering = self.status.answering
        refuse = self._answers.refused if answering is None else answering.refuse
        refuse(name, text[:SHOWN_CHARACTERS], str(error))


# argv -> exit status
main = partial(run_node, VlmNode, BAD_SETTINGS_ERRORS, (), partial(check_given, "vlm"), large_block=TENSOR_BLOCK)


def program() -> NoReturn:
    """Entry point of the executable `vlm`."""
    leave(main())


if __name__ == "__main__":
    leave(main())
