"""What the agent holds between configure and cleanup: the warmed-up plans and the topics that the policy needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from auras_ros.action import Chunk
from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.actuator_watch import LATCHED, ActuatorWatch
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.loading import unload
from auras_ros.nodes.agent.overload import Overload, OverloadLevel
from auras_ros.nodes.agent.prompt import PROMPT, PromptGate
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.agent.tokenising import Tokenising
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.pipeline.request import Emission
from auras_ros.ros import Node
from auras_ros.ros.msg import String


class ConfiguredPolicy:
    """Subscribes at once; each activation makes new frames."""

    def __init__(self, node: Node, settings: AgentSettings, pipelines: tuple[Pipeline, ...], qos: QosWatch) -> None:
        self._node, self.settings, self.pipelines = node, settings, pipelines
        checkpoint = pipelines[0].checkpoint
        self._contract = checkpoint.contract
        self.inputs = ObservationInputs(node, checkpoint.spec, settings, qos)
        self.actuator = ActuatorWatch(node, settings.actuator, settings.actuator_timeout_ms, qos)
        language = checkpoint.language
        stored, trouble = (None, "") if language is None else (language.prompt.text, language.prepare())
        self.prompt = PromptGate(node, settings.prompt_limit_bytes, stored, trouble)
        self._frames: FrameRunner | None = None
        self._setting = threading.Lock()  # a prompt is set either before frames are made, or in them
        self._tokenising = (
            None if language is None else Tokenising(language.ids, self._use_prompt, self.prompt.unusable)
        )
        self._prompt_topic = node.create_subscription(
            String, PROMPT, self._on_prompt, LATCHED, event_callbacks=qos.subscription(PROMPT)
        )

    def frames(self, voice: AgentPublishers, on_step: Callable[[OverloadLevel], None]) -> FrameRunner:
        """Frames that are ready to start, with the first plan and the newest prompt."""

        def publish(chunk: Chunk, emission: Emission) -> None:
            voice.chunk(chunk, emission, self._contract)

        settings = self.settings
        overload = Overload(round(settings.max_age_ms * 1e6), len(self.pipelines) > 1)
        with self._setting:
            self._frames = frames = FrameRunner(
                self.pipelines, self.inputs, self.actuator, overload, publish, on_step, settings.core_numbers(),
                settings.threads, self.prompt.text, self.prompt.active, settings.phase_lock,
            )  # fmt: skip
        return frames

    def _on_prompt(self, message: String) -> None:
        if not self.prompt.offer(message.data):
            return
        if self._tokenising is not None:
            if self._frames is not None:
                self._frames.want_prompt(self.prompt.text)  # from here on no chunk of another prompt is published
            self._tokenising.want(self.prompt.text)
        elif self._frames is not None:
            self._frames.set_prompt(self.prompt.text)

    def _use_prompt(self, text: str, ids: Sequence[int]) -> None:
        """Called in the tokenising thread. Raises ValueError if the policy cannot take the prompt."""
        with self._setting:
            if text != self.prompt.text:  # a newer prompt is wanted, and comes next
                return
            if self._frames is not None:
                self._frames.use_prompt(text, ids)
            else:
                for pipeline in self.pipelines:
                    pipeline.set_prompt(ids)
            self.prompt.active = text

    def close(self) -> None:
        """Release topics and plans. The frames must have ended."""
        self._node.destroy_subscription(self._prompt_topic)
        if self._tokenising is not None:
            self._tokenising.close()
        self.inputs.close()
        self.actuator.close()
        self._frames = None
        unload(self.pipelines)
