"""What the agent has between configure and cleanup: the warmed-up plans and the topics that the policy needs."""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.action import Chunk
from auras_ros.nodes.agent_frames import Frames
from auras_ros.nodes.agent_inputs import Inputs
from auras_ros.nodes.agent_load import unload
from auras_ros.nodes.agent_peers import LATCHED, PROMPT, ActuatorWatch, Prompt
from auras_ros.nodes.agent_settings import Settings
from auras_ros.nodes.agent_voice import Voice
from auras_ros.nodes.diagnostics import QosWatch
from auras_ros.nodes.overload import Overload, Step
from auras_ros.pipeline.load import Pipeline
from auras_ros.pipeline.request import Emission
from auras_ros.ros import Node
from auras_ros.ros.msg import String


class Configured:
    """Subscribes at once; frames are made anew for each activation."""

    def __init__(self, node: Node, settings: Settings, pipelines: tuple[Pipeline, ...], qos: QosWatch) -> None:
        self._node, self.settings, self.pipelines = node, settings, pipelines
        checkpoint = pipelines[0].checkpoint
        self._contract = checkpoint.contract
        self.inputs = Inputs(node, checkpoint.spec, settings, qos)
        self.actuator = ActuatorWatch(node, settings.actuator, settings.actuator_timeout_ms, qos)
        self.prompt = Prompt(node, settings.prompt_limit_bytes)
        self._frames: Frames | None = None
        self._prompt_topic = node.create_subscription(
            String, PROMPT, self._on_prompt, LATCHED, event_callbacks=qos.subscription(PROMPT)
        )

    def frames(self, voice: Voice, on_step: Callable[[Step], None]) -> Frames:
        """Frames that are ready to start, with the first plan and the newest prompt."""

        def publish(chunk: Chunk, emission: Emission) -> None:
            voice.chunk(chunk, emission, self._contract)

        settings = self.settings
        overload = Overload(round(settings.max_age_ms * 1e6), len(self.pipelines) > 1)
        self._frames = Frames(
            self.pipelines, self.inputs, self.actuator, overload, publish, on_step, settings.core_numbers(),
            settings.threads, self.prompt.text,
        )  # fmt: skip
        return self._frames

    def _on_prompt(self, message: String) -> None:
        if self.prompt.offer(message.data) and self._frames is not None:
            self._frames.set_prompt(self.prompt.text)

    def close(self) -> None:
        """Let go of topics and plans. The frames have ended."""
        self._node.destroy_subscription(self._prompt_topic)
        self.inputs.close()
        self.actuator.close()
        self._frames = None
        unload(self.pipelines)
