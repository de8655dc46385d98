"""All arming rules, in the order in which they are checked; the first one that refuses gives the reason.

Pure functions of what the actuator knows at one instant; they return a reason or "". Nothing here arms, and nothing
else decides whether arming is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.nodes.actuator.other_publishers import conflict_text
from auras_ros.nodes.actuator.position import MAX_AGE_MS
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.actuator.stop_words import STOP_QOS

ACTIVE = "active"
REQUIRED = "require_emergency_stop"
RELEASE = "for one that is gone or unknown: the service ~/release_stop"


@dataclass(frozen=True)
class Situation:
    """Ages in ns, None for what never came. `pressed`: the publishers that have pressed the emergency stop and not
    released it, as text, or "". `stop_latched`: why only the service ~/release_stop releases, or "".
    `stop_missing`: why a required button cannot be relied on, or "".
    `stop_deaf`: publishers of it whose QoS does not match, so that nothing is received. `stop_unheard`: publishers
    that were discovered a moment ago and whose last message may still be on its way.

    `unknown`: a position channel without a measured position. `joints_hint`: why there is none, as an end of the
    reason, or "". `position_doubt`: why the measured position is not
    certain, or "". `unlimited`: a channel whose joint has no limits in the
    robot's description. `others`: nodes that publish commands beside this one, None while that is not yet known.
    `ros_time_ns`: None on system time. `other_checkpoint`: what is wrong with the agent's checkpoint
    (`AgentWatch.other_checkpoint`), or "".
    """

    agent_age_ns: int | None = None
    lifecycle: str = ""
    joints_age_ns: int | None = None
    unknown: str = ""
    joints_hint: str = ""
    position_doubt: str = ""
    others: tuple[str, ...] | None = None
    pressed: str = ""
    stop_latched: str = ""
    stop_missing: str = ""
    stop_deaf: str = ""
    stop_unheard: str = ""
    described: bool = False
    unlimited: str = ""
    limits_pending: bool = False
    ros_time_ns: int | None = None
    other_checkpoint: str = ""


def arming_refusal(at: Situation, settings: ActuatorSettings) -> str:
    """Why arming is refused now; empty if no rule refuses."""
    return next((reason for rule in RULES if (reason := rule(at, settings))), "")


def emergency_stop(at: Situation, settings: ActuatorSettings) -> str:
    if at.pressed:
        return f"the emergency stop is pressed by {at.pressed}: release it first ({RELEASE})"
    if at.stop_deaf:  # whoever has a button counts on it, required or not
        return f"the emergency stop of {at.stop_deaf} cannot be received: publish it as {STOP_QOS}"
    if at.stop_unheard:
        return f"the emergency stop of {at.stop_unheard} was found a moment ago and has said nothing yet: try again"
    if at.stop_missing:
        return f"no emergency stop: {at.stop_missing}, and {REQUIRED} is set"
    if at.stop_latched:
        return f"stopped and not released ({at.stop_latched}): call the service ~/release_stop"
    return ""


def sole_publisher(at: Situation, settings: ActuatorSettings) -> str:
    return conflict_text(at.others) if at.others else ""


def sane_time(at: Situation, settings: ActuatorSettings) -> str:
    return "use_sim_time is set and no /clock has come" if at.ros_time_ns == 0 else ""


def known_limits(at: Situation, settings: ActuatorSettings) -> str:
    if at.limits_pending:
        return "new limits are about to be taken: arm again"
    if not settings.require_robot_description:
        return ""
    if not at.described:
        return "no robot_description with joint limits has come, and require_robot_description is set"
    return f"robot_description has no limits for {at.unlimited}" if at.unlimited else ""


def known_position(at: Situation, settings: ActuatorSettings) -> str:
    if not settings.measured_start:
        return ""
    if at.joints_age_ns is None or at.joints_age_ns > MAX_AGE_MS * 1_000_000:
        return f"no joint_states within {MAX_AGE_MS} ms: the robot's position must be known{at.joints_hint}"
    if at.unknown:
        return f"joint_states has no position of {at.unknown}: a set point needs its start{at.joints_hint}"
    return at.position_doubt


def live_agent(at: Situation, settings: ActuatorSettings) -> str:
    if at.agent_age_ns is None or at.agent_age_ns > settings.agent_timeout_ms * 1e6:
        return f"agent '{settings.agent}' is silent: start it first"
    if at.lifecycle != ACTIVE:
        return f"agent '{settings.agent}' is {at.lifecycle or 'of no known state'}: activate it first"
    return ""


def same_checkpoint(at: Situation, settings: ActuatorSettings) -> str:
    return f"agent '{settings.agent}' {at.other_checkpoint}" if at.other_checkpoint else ""


def settled_graph(at: Situation, settings: ActuatorSettings) -> str:
    """The last rule, because it is met after a moment by itself; every other reason is more useful to the user."""
    return "who else publishes commands is not known yet: just started, try again" if at.others is None else ""


RULES: tuple[Callable[[Situation, ActuatorSettings], str], ...] = (
    emergency_stop,
    sole_publisher,
    sane_time,
    known_limits,
    known_position,
    live_agent,
    same_checkpoint,
    settled_graph,
)
