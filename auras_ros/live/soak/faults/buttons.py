"""More than one button of the emergency stop: what one of them says takes back nothing that another has said.

rclpy 7.1 does not say whose a message is: there `release_stop` is needed after each press."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from auras_ros.live.soak.harness import SoakHarness, Times
from auras_ros.live.soak.topics import BUTTON
from auras_ros.ros.identity import IDENTIFIES_PUBLISHERS
from auras_ros.ros.msg import Bool

HEARD_NS = 200_000_000  # a word is heard long before


@contextmanager
def _button(harness: SoakHarness) -> Iterator[Any]:
    with harness.publisher(BUTTON) as made:
        made.publish(Bool(data=False))
        _heard(harness)  # who has just come is not yet known to all
        yield made


def second_button(harness: SoakHarness) -> Times:
    """Both are pressed and one is released, the first or the second: nobody may arm before the other one is too."""
    with _button(harness) as other:
        says: list[Callable[[bool], object]] = [harness.witness.press, lambda down: other.publish(Bool(data=down))]
        at_ns = harness.now_ns()
        for say in says:
            say(True)
        stopped_ns = harness.first_of("stopped", at_ns)
        harness.rng.shuffle(says)
        says[0](False)
        _stays(harness, "one of two buttons is still pressed")
        says[1](False)
        if IDENTIFIES_PUBLISHERS:
            stays = "stays pressed", "both buttons were released"
            harness.expect(lambda: not harness.witness.state["emergency_stop"], *stays)
    return at_ns, stopped_ns


def button_gone(harness: SoakHarness) -> Times:
    """It vanishes while it is pressed: the stop stays pressed until ~/release_stop is called, which is refused while
    the button still exists."""
    with _button(harness) as button:
        at_ns = harness.now_ns()
        button.publish(Bool(data=True))
        stopped_ns = harness.first_of("stopped", at_ns)
        if IDENTIFIES_PUBLISHERS and harness.call("actuator/release_stop"):
            harness.judge.violate("released while pressed", "the button is there and says True")
    _stays(harness, "the button vanished while it was pressed")
    stays = "stays pressed", "the button is gone, and release_stop was called"
    harness.expect(lambda: harness.call("actuator/release_stop"), *stays)
    return at_ns, stopped_ns


def _stays(harness: SoakHarness, why: str) -> None:
    """Pressed, for all who ask: disarming does not take it back, and arming is refused."""
    _heard(harness)
    harness.call("actuator/disarm")
    if harness.arm():
        harness.judge.violate("armed while pressed", why)


def _heard(harness: SoakHarness) -> None:
    since_ns = harness.now_ns() + HEARD_NS
    harness.until(lambda: harness.witness.state["mono_ns"] > since_ns)
