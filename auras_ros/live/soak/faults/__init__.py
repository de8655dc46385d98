"""The faults, one function each: break, wait for what was promised, mend. Arming again is the loop's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.live.soak.faults import buttons, loaded, messages, others, peers, presses, processes, rivals
from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.judge import HOLD_MS, NAMED_MS, SILENT_MS


@dataclass(frozen=True)
class InjectedFault:
    """`promise`: what the time is measured to, within limit_ms; None: measured alone. `play` breaks and mends.
    It comes in the first round and in each `every`-th after it. 0: in the first round alone, so that processes live
    long enough for a verdict on their memory. first: how often in the first round, so that each of its cases has come
    before memory is looked at."""

    play: Callable[[SoakHarness], Times]
    promise: str
    limit_ms: float | None = None
    every: int = 1
    first: int = 1


def faults(max_age_ms: float, rate_hz: float) -> dict[str, InjectedFault]:
    """By name. A camera that is silent ends in a hold when the newest chunk's actions are too old."""
    two_ticks_ms = 2 * 1000.0 / rate_hz
    aged_ms, silent_ms = max_age_ms + two_ticks_ms, others.SILENCE_MS + two_ticks_ms
    known = (
        InjectedFault(processes.agent_killed, "hold", HOLD_MS, every=0),
        InjectedFault(processes.agent_stopped, "hold", HOLD_MS),
        InjectedFault(peers.agent_deactivated, "last hold", HOLD_MS),
        InjectedFault(presses.stop_pressed, "hold", HOLD_MS, first=len(presses.cases())),
        InjectedFault(buttons.second_button, "hold", HOLD_MS),
        InjectedFault(buttons.button_gone, "hold", HOLD_MS),
        InjectedFault(processes.camera_stalled, "hold", silent_ms),  # joint states too
        InjectedFault(processes.camera_repeats, "hold", aged_ms),
        InjectedFault(processes.overrun, "new chunk after it"),
        InjectedFault(processes.actuator_killed, "last chunk", SILENT_MS, every=0),
        InjectedFault(processes.actuator_respawned, "last chunk", SILENT_MS, every=0),
        InjectedFault(others.arm_on_start_used, "driven if asked", every=2),
        InjectedFault(processes.actuator_stopped, "last chunk", SILENT_MS),
        InjectedFault(others.second_actuator, "disarmed", NAMED_MS, every=2),
        InjectedFault(rivals.second_agent, "refused"),
        InjectedFault(rivals.second_camera, "driven after it"),
        InjectedFault(peers.second_publisher, "named", NAMED_MS),
        InjectedFault(peers.publishers_at_arming, "disarmed", NAMED_MS),
        InjectedFault(rivals.late_node, "found", rivals.FOUND_MS),
        InjectedFault(peers.bad_parameter, "refused"),
        InjectedFault(peers.qos_mismatch, "named", NAMED_MS),
        InjectedFault(peers.clock_set_back, "disarmed", HOLD_MS),
        InjectedFault(peers.robot_moved, "driven last", HOLD_MS),
        InjectedFault(processes.simulator_killed, "hold", silent_ms, every=0),
        InjectedFault(messages.garbage, "driven after it"),
        InjectedFault(messages.noise, "named"),
        InjectedFault(messages.image_corrupt, "named"),
        InjectedFault(messages.image_wrong, "named"),
        InjectedFault(messages.stamp_ahead, "named"),
        InjectedFault(messages.joint_states_of_others, "named"),
        InjectedFault(messages.joint_states_stamped, "named"),
        InjectedFault(others.joint_states_in_parts, "hold", silent_ms, every=2),
        InjectedFault(messages.log_unread, "stopped if asked", HOLD_MS),
        InjectedFault(messages.log_closed, "stopped if asked", HOLD_MS),
        InjectedFault(others.log_full, "driven", every=2),
        InjectedFault(loaded.load, "driven after it"),
        InjectedFault(loaded.agent_killed_under_load, "hold", every=0),
        InjectedFault(messages.prompt_huge, "refused"),
        InjectedFault(messages.prompt_garbage, "refused"),
    )
    return {fault.play.__name__: fault for fault in known}
