"""What the agent holds between configure and cleanup: the warmed-up plans and the topics that the policy needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from auras_ros.loading.pipeline import Pipeline
from auras_ros.nodes.agent.actuator_watch import ActuatorWatch
from auras_ros.nodes.agent.frame_runner import ChunkGate, FrameRunner
from auras_ros.nodes.agent.inputs import ObservationInputs
from auras_ros.nodes.agent.loading import unload
from auras_ros.nodes.agent.monitors import ANSWER, MonitorGate
from auras_ros.nodes.agent.overload import OverloadLevel
from auras_ros.nodes.agent.prompt import PROMPT, PromptGate
from auras_ros.nodes.agent.publishers import AgentPublishers
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.bounded_subscription import subscribe
from auras_ros.nodes.common.diagnostics import QosWatch
from auras_ros.nodes.common.messages import JSON_LIMITS
from auras_ros.nodes.common.qos import ANSWERS, LATCHED
from auras_ros.ros import Node
from auras_ros.ros.bounded import text_limits
from auras_ros.ros.msg import String


class ConfiguredPolicy:
    """Subscribes at once; each activation makes new frames. monitors: None without rules. pause_changed: called in the
    executor's thread when one of them has begun or ended a pause."""

    def __init__(
        self,
        node: Node,
        settings: AgentSettings,
        pipelines: tuple[Pipeline, ...],
        qos: QosWatch,
        pause_changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._node, self.settings, self.pipelines = node, settings, pipelines
        checkpoint = pipelines[0].checkpoint
        self._contract = checkpoint.contract
        self.inputs = ObservationInputs(node, checkpoint.spec, settings, qos, self._contract)
        self.actuator = ActuatorWatch(node, settings.actuator, settings.actuator_timeout_ms, qos)
        self.prompts = PromptGate(
            checkpoint.language, self._set_token_ids, settings.prompt_limit_bytes, node.get_logger()
        )
        self._topics = [
            subscribe(
                qos,
                String,
                PROMPT,
                lambda message: self.prompts.want(message.data),
                LATCHED,
                text_limits(settings.prompt_limit_bytes),
                lambda error: self.prompts.refuse(f"{PROMPT}: {error}"),
            )
        ]
        self.monitors = self._monitors(qos, pause_changed) if settings.monitor_rules() else None
        self.gate: ChunkGate = self.monitors or self.prompts

    def _monitors(self, qos: QosWatch, changed: Callable[[], None]) -> MonitorGate:
        node, settings = self._node, self.settings
        gate = MonitorGate(
            settings.monitor_rules(), settings.monitor_age_ms, self.prompts,
            lambda: int(node.get_clock().now().nanoseconds), node.get_logger(), changed,
        )  # fmt: skip
        self._topics.append(
            subscribe(
                qos,
                String,
                ANSWER,
                lambda message: gate.on_answer(message.data),
                ANSWERS,
                JSON_LIMITS,
                lambda error: gate.refuse(f"{ANSWER}: {error}"),
            )
        )
        return gate

    def _set_token_ids(self, ids: Sequence[int]) -> None:
        for pipeline in self.pipelines:
            pipeline.set_prompt(ids)

    def frames(self, publishers: AgentPublishers, overload_changed: Callable[[OverloadLevel], None]) -> FrameRunner:
        """Frames that are ready to start, with the first plan."""
        return FrameRunner(
            self.pipelines, self.inputs, self.actuator, self.gate, self.settings,
            lambda chunk, emission: publishers.chunk(chunk, emission, self._contract), overload_changed,
        )  # fmt: skip

    def close(self) -> None:
        """Release topics and plans. The frames must have ended."""
        for topic in self._topics:
            topic.close()
        self.prompts.close()
        self.inputs.close()
        self.actuator.close()
        unload(self.pipelines)
