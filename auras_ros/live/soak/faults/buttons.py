"""More than one button of the emergency stop: what one of them says takes back nothing that another has said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from auras_ros.live.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.live.soak.qos import LATCHED
from auras_ros.live.soak.scene import SoakHarness
from auras_ros.ros import BACKEND
from auras_ros.ros.msg import Bool

HEARD_NS = 200_000_000  # a word is heard long before
EACH_WORD_COUNTS = BACKEND == "dds"  # rclpy 7.1 does not say whose a word is: `release_stop` is needed each time


@contextmanager
def _button(harness: SoakHarness) -> Iterator[Any]:
    made = harness.witness.create_publisher(Bool, "emergency_stop", LATCHED)
    try:
        harness.until(lambda: made.get_subscription_count() > 0, PATIENCE_S)
        made.publish(Bool(data=False))
        _heard(harness)  # who has just come is not yet known to all
        yield made
    finally:
        harness.witness.destroy_publisher(made)


def second_button(harness: SoakHarness) -> Times:
    """Both are pressed and one is released, the first or the second: nobody may arm before the other one is too."""
    with _button(harness) as other:

        def press_other(down: bool) -> None:
            other.publish(Bool(data=down))

        says = [harness.witness.press, press_other]
        at_ns = harness.now_ns()
        for say in says:
            say(True)
        stopped_ns = harness.first_of("stopped", at_ns, PATIENCE_S)
        harness.rng.shuffle(says)
        says[0](False)
        _stays(harness, "one of two buttons is still pressed")
        says[1](False)
        if EACH_WORD_COUNTS and not harness.until(lambda: not harness.witness.state["emergency_stop"], PATIENCE_S):
            harness.judge.violate("stays pressed", "both buttons were released")
    return at_ns, stopped_ns


def button_gone(harness: SoakHarness) -> Times:
    """It vanishes while it is pressed: the stop stays pressed until ~/release_stop is called, which is refused while
    the button still exists."""
    with _button(harness) as button:
        at_ns = harness.now_ns()
        button.publish(Bool(data=True))
        stopped_ns = harness.first_of("stopped", at_ns, PATIENCE_S)
        if EACH_WORD_COUNTS and _released(harness):
            harness.judge.violate("released while pressed", "the button is there and says True")
    _stays(harness, "the button vanished while it was pressed")
    if not harness.until(lambda: _released(harness), PATIENCE_S):
        harness.judge.violate("stays pressed", "the button is gone, and release_stop was called")
    return at_ns, stopped_ns


def _released(harness: SoakHarness) -> bool:
    response = harness.answer(lambda: harness.witness.call("actuator/release_stop"))
    return response is not None and bool(response.success)


def _stays(harness: SoakHarness, why: str) -> None:
    """Pressed, for all who ask: disarming does not take it back, and arming is refused."""
    _heard(harness)
    harness.answer(lambda: harness.witness.call("actuator/disarm"))
    if harness.arm():
        harness.judge.violate("armed while pressed", why)


def _heard(harness: SoakHarness) -> None:
    since_ns = harness.now_ns() + HEARD_NS
    harness.until(lambda: harness.witness.state["mono_ns"] > since_ns, PATIENCE_S)
