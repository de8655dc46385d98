"""More than one button of the emergency stop: what one of them says takes back nothing that another has said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from auras_ros.ros import BACKEND
from auras_ros.ros.msg import Bool
from auras_ros.soak.faults.kinds import PATIENCE_S, Times
from auras_ros.soak.qos import LATCHED
from auras_ros.soak.scene import SoakHarness

HEARD_NS = 200_000_000  # a word is heard long before
EACH_WORD_COUNTS = BACKEND == "dds"  # rclpy 7.1 does not say whose a word is: `release_stop` is needed each time


@contextmanager
def _button(scene: SoakHarness) -> Iterator[Any]:
    made = scene.witness.create_publisher(Bool, "emergency_stop", LATCHED)
    try:
        scene.until(lambda: made.get_subscription_count() > 0, PATIENCE_S)
        made.publish(Bool(data=False))
        _heard(scene)  # who has just come is not yet known to all
        yield made
    finally:
        scene.witness.destroy_publisher(made)


def second_button(scene: SoakHarness) -> Times:
    """Both are pressed and one is released, the first or the second: nobody may arm before the other one is too."""
    with _button(scene) as other:

        def press_other(down: bool) -> None:
            other.publish(Bool(data=down))

        says = [scene.witness.press, press_other]
        at_ns = scene.now_ns()
        for say in says:
            say(True)
        stopped_ns = scene.first_of("stopped", at_ns, PATIENCE_S)
        scene.rng.shuffle(says)
        says[0](False)
        _stays(scene, "one of two buttons is still pressed")
        says[1](False)
        if EACH_WORD_COUNTS and not scene.until(lambda: not scene.witness.state["emergency_stop"], PATIENCE_S):
            scene.judge.violate("stays pressed", "both buttons were released")
    return at_ns, stopped_ns


def button_gone(scene: SoakHarness) -> Times:
    """It vanishes while it is pressed: it stays so until a person releases it by service, which while it is there
    nobody can."""
    with _button(scene) as button:
        at_ns = scene.now_ns()
        button.publish(Bool(data=True))
        stopped_ns = scene.first_of("stopped", at_ns, PATIENCE_S)
        if EACH_WORD_COUNTS and _released(scene):
            scene.judge.violate("released while pressed", "the button is there and says True")
    _stays(scene, "the button vanished while it was pressed")
    if not scene.until(lambda: _released(scene), PATIENCE_S):
        scene.judge.violate("stays pressed", "the button is gone, and release_stop was called")
    return at_ns, stopped_ns


def _released(scene: SoakHarness) -> bool:
    response = scene.answer(lambda: scene.witness.call("actuator/release_stop"))
    return response is not None and bool(response.success)


def _stays(scene: SoakHarness, why: str) -> None:
    """Pressed, for all who ask: disarming does not take it back, and arming is refused."""
    _heard(scene)
    scene.answer(lambda: scene.witness.call("actuator/disarm"))
    if scene.arm():
        scene.judge.violate("armed while pressed", why)


def _heard(scene: SoakHarness) -> None:
    since_ns = scene.now_ns() + HEARD_NS
    scene.until(lambda: scene.witness.state["mono_ns"] > since_ns, PATIENCE_S)
