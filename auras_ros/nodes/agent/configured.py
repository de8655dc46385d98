"""What the agent holds between configure and cleanup: the warmed-up plans and the topics that the policy needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.actuator_watch import ActuatorWatch
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.loading import unload
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.prompt import PROMPT, PromptGate
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.qos import LATCHED
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
        self.prompts = PromptGate(
            checkpoint.language, self._set_token_ids, settings.prompt_limit_bytes, node.get_logger()
        )
        self._prompt_topic = qos.create_subscription(
            String, PROMPT, lambda message: self.prompts.want(message.data), LATCHED
        )

    def _set_token_ids(self, ids: Sequence[int]) -> None:
        for pipeline in self.pipelines:
            pipeline.set_prompt(ids)

    def frames(self, publishers: AgentPublishers, overload_changed: Callable[[OverloadLevel], None]) -> FrameRunner:
        """Frames that are ready to start, with the first plan."""
        return FrameRunner(
            self.pipelines, self.inputs, self.actuator, self.prompts, self.settings,
            lambda chunk, emission: publishers.chunk(chunk, emission, self._contract), overload_changed,
        )  # fmt: skip

    def close(self) -> None:
        """Release topics and plans. The frames must have ended."""
        self._node.destroy_subscription(self._prompt_topic)
        self.prompts.close()
        self.inputs.close()
        self.actuator.close()
        unload(self.pipelines)
