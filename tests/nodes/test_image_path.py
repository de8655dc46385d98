"""docs/call-paths.md, "An image": one image goes through the calls of that page in their order, live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.nodes.stand_ins import Robot
from tests.nodes.wire import PATIENT, Children, Watch
from tests.package.test_call_paths import CALL, PAGE

TRACE = """
import functools, importlib, json, time
def noted(call, function):
    @functools.wraps(function)
    def calls(*given, **named):
        with open({path!r}, "a") as out:
            out.write(json.dumps([time.monotonic_ns(), *call]) + chr(10))
        return function(*given, **named)
    return calls
for file, name in {calls}:
    module = importlib.import_module("auras_ros." + file[:-3].replace("/", "."))
    for owner in [each for each in vars(module).values() if isinstance(each, type) and name in vars(each)]:
        if owner.__module__ == module.__name__:
            setattr(owner, name, noted((file, name), vars(owner)[name]))
"""
# These run without an image too: at each tick, for joint states, and while the loop waits.
PERIODIC = {"_tick", "tick", "_latch", "latch"}
IMAGES = 5  # a loop that looks just as an image comes may have been entered before it, and take it all the same


@pytest.mark.slow
def test_one_image_takes_the_calls_of_the_page_in_their_order(
    children: Children, watch: Watch, robot: Robot, checkpoint: str, tmp_path: Path
) -> None:
    walk = PAGE.split("## An image", 1)[1].split("## A prompt", 1)[0]
    calls, path = CALL.findall(walk), tmp_path / "calls"
    calls.remove(("pipeline/live.py", "_begin"))  # it may have been entered before, and wait
    calls.remove(("pipeline/live.py", "arrived"))  # it wakes a loop that may have looked by itself just before
    code = TRACE.format(calls=json.dumps(calls), path=str(path))
    robot.images = False
    children.node("agent", {"checkpoint": checkpoint}, code=code)
    children.node("actuator", {"checkpoint": checkpoint, "agent_timeout_ms": 1000.0}, code=code + PATIENT)
    watch.hear_agent()
    watch.until(lambda: watch.beats and watch.beats[-1]["lifecycle"] == "active", "an active agent")
    watch.arm()

    def times() -> list[int]:
        """Of each call the first, but of periodic ones the first after the call before it; as far as they came."""
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found: list[int] = []
        for file, name in calls:
            since = found[-1] if name in PERIODIC else 0
            at = next((at for at, *call in lines if call == [file, name] and at >= since), None)
            if at is None:
                break
            found.append(at)
        return found

    for _ in range(IMAGES):
        path.unlink(missing_ok=True)
        robot.image_topic.publish(robot.image())
        watch.until(lambda: path.exists() and len(times()) == len(calls), "every call of the page")
        in_order = sorted(zip(times(), range(len(calls)), strict=True))
        if [number for _, number in in_order] == list(range(len(calls))):
            return
    pytest.fail(f"{IMAGES} images, and none in the page's order; the last one: {[calls[at] for _, at in in_order]}")
