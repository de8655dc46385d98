"""Two arms before four cameras, live: agent and actuator as `config/two_arms.yaml` sets them, each in its own process.

What the policy makes of all four cameras reaches fourteen joints by name and in order; a camera that stops, shows
something else or lies in another time is said by its name, and nothing is made of the other three.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from auras_ros.policies.checkpoint import Checkpoint, load
from auras_ros.ros.msg import Float64MultiArray
from tests.nodes.agent_child import Running
from tests.nodes.controllers import OnTime, positions
from tests.nodes.test_controllers_config import ARMS, section
from tests.nodes.two_arms import CAMERAS, HEIGHT, LOWER, REST, UPPER, WIDTH, Cell, actions, pictures, write
from tests.nodes.wire import RELIABLE, Children, Watch, own_domain

CONFIG = "two_arms.yaml"
ERROR = 2
ROUNDING = 1e-9
TOLERANCE_MS = 50  # of the agent's `sync_tolerance_ms`, which the configuration leaves as it is
SWAPPED = 10  # golden tolerances: two cameras or two joints in each other's place change the actions by more


@dataclass
class Arms:
    """The processes, the cell before them, and what was said on the topics that the tests judge."""

    agent: Running
    cell: Cell
    watch: Watch
    controller: OnTime
    checkpoint: Checkpoint
    chunks: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # request -> [horizon, joints]
    orders: set[str] = field(default_factory=set)  # of the joints, in every chunk and every action

    def on_chunk(self, message: Float64MultiArray) -> None:
        horizon, channels, provenance = message.layout.dim
        self.orders.add(channels.label)
        request = json.loads(provenance.label)["request"]
        self.chunks[request] = np.array(message.data).reshape(horizon.size, channels.size)

    def on_action(self, message: Float64MultiArray) -> None:
        self.orders.add(message.layout.dim[0].label)

    def newest_ns(self, camera: str) -> int:
        """The stamp of the newest image that this camera has published."""
        return self.cell.stamps_ns[camera][-1]

    def counts(self, what: str) -> dict[str, int]:
        """Camera -> what diagnostics count, of now and not of a second ago."""
        known = self.agent.diagnostics.get("observation")
        self.watch.until(lambda: self.agent.diagnostics.get("observation") is not known, "diagnostics")
        values = self.agent.diagnostics["observation"][2]
        return {camera: int(values[f"{camera} {what}"]) for camera in CAMERAS}

    def holds(self, camera: str, fault: str) -> None:
        """It is said of this camera alone, the actuator holds, and no chunk comes any more."""
        began_ns = time.monotonic_ns()
        self.agent.diagnosed("observation", ERROR, f"^no observation: {camera}: {fault}: ")
        self.agent.says(f"{camera} {fault}")
        self.watch.first("holding", began_ns)
        count, now = len(self.watch.chunks), self.watch.states[-1]["tick"]
        self.watch.state_where(lambda state: state["tick"] > now + 30, "thirty ticks")
        assert len(self.watch.chunks) == count


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arms]:
    """Agent and actuator, armed; every test leaves them driving."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("two_arms")
    write(folder / "policy")
    given = {"checkpoint": str(folder / "policy")}
    with own_domain():
        watch, children = Watch(), Children(folder)
        cell = Cell(watch.node)
        try:
            watch.hear_agent()
            node, joints = watch.node, [*ARMS[7:], *ARMS[:7]]  # the controller has an order of its own
            # Patient with a busy machine; the button's silence and the cameras' ages are not the point here.
            patient = {"agent_timeout_ms": 1000.0, "emergency_stop_max_silence_ms": 10000.0}
            settings = section(CONFIG, "actuator") | given | patient
            children.node("actuator", settings)
            agent = section(CONFIG, "agent") | given | {"camera_age_limit_ms": 1000.0, "state_age_limit_ms": 1000.0}
            agent["resize_images"] = False  # an image of another size is a fault here
            running = Running(children.node("agent", agent), watch, cell)
            controller = OnTime(node, joints, settings["trajectory_topic"])
            made = Arms(running, cell, watch, controller, load(folder / "policy"))
            node.create_subscription(Float64MultiArray, "agent/chunk", made.on_chunk, RELIABLE)
            node.create_subscription(Float64MultiArray, "action", made.on_action, RELIABLE)
            watch.until(lambda: watch.states and watch.beats, "both processes")
            running.reaches("active")
            watch.arm()
            yield made
        finally:
            children.reap()
            cell.close()
            watch.close()


@pytest.fixture
def arms(shared: Arms) -> Arms:
    shared.watch.armed("it drives")
    return shared


def test_what_four_cameras_and_fourteen_joints_show_is_what_the_policy_makes_its_chunks_of(arms: Arms) -> None:
    """Each chunk on the wire is the one that the checkpoint gives for these four images and joints in their places."""
    checkpoint, tolerance = arms.checkpoint, arms.checkpoint.tolerance()
    seen = set(arms.chunks)
    arms.watch.until(lambda: len(arms.chunks) >= len(seen) + 5, "five chunks")
    for request in sorted(arms.chunks.keys() - seen):
        expected = actions(checkpoint, pictures(), REST, request)
        assert (np.abs(arms.chunks[request] - expected) <= tolerance).all(), request
    # The comparison would see two cameras, or two joints, in each other's place.
    right = actions(checkpoint, pictures(), REST, 0)
    for one, other in itertools.combinations(CAMERAS, 2):
        images = pictures()
        images[one], images[other] = images[other], images[one]
        assert (np.abs(actions(checkpoint, images, REST, 0) - right) / tolerance).max() > SWAPPED, (one, other)
    for i in range(len(ARMS) - 1):
        joints = REST.copy()
        joints[[i, i + 1]] = joints[[i + 1, i]]
        assert (np.abs(actions(checkpoint, pictures(), joints, 0) - right) / tolerance).max() > SWAPPED, ARMS[i]


def test_both_arms_are_commanded_by_name_and_in_order(arms: Arms) -> None:
    count, heard = len(arms.controller.horizons), len(arms.watch.actions)
    arms.watch.until(lambda: len(arms.controller.horizons) >= count + 5, "five trajectories")
    arms.watch.until(lambda: len(arms.watch.actions) >= heard + 100, "a hundred commands")
    assert arms.orders == {",".join(ARMS)}
    assert arms.controller.refused == []
    commands = np.stack([each.values for each in arms.watch.actions])
    points = np.concatenate([positions(message, ARMS) for message in arms.controller.accepted])
    for values in (commands, points):  # no two joints have a value in common
        assert (values >= LOWER - ROUNDING).all()
        assert (values <= UPPER + ROUNDING).all()
    driven = [each for each in arms.watch.actions[heard:] if each.label.source == "chunk"]
    exact = [each for each in driven if np.allclose(each.values, arms.chunks[each.label.request][each.label.index])]
    assert len(exact) > len(driven) / 2  # the others are on their way there, by their rates


def test_images_of_one_instant_come_one_after_another_and_that_is_not_reported(arms: Arms) -> None:
    """Guards against a report for each of the four images but the last: they never come at once."""

    def counted() -> int:
        return int(arms.agent.diagnostics["observation"][2].get("fault skew", 0))  # none yet, and it is not said

    before = max(arms.counts("received").values())
    said, found, beats = arms.agent.child.output.count("skew: "), counted(), len(arms.watch.beats)
    arms.watch.until(  # rounds of images, some of which a frame has looked at before they were complete
        lambda: min(arms.counts("received").values()) >= before + 60 and counted() >= found + 20, "rounds of images"
    )
    found = counted() - found
    assert arms.agent.child.output.count("skew: ") - said < found / 4  # but one that lasts, on a busy machine, is said
    skewed = [beat for beat in arms.watch.beats[beats:] if "skew" in beat["state"]]
    assert len(skewed) < (len(arms.watch.beats) - beats) / 10


@pytest.mark.parametrize("camera", CAMERAS)
def test_one_camera_that_stops_ends_the_chunks_though_the_others_go_on(arms: Arms, camera: str) -> None:
    arms.cell.stalled.add(camera)
    try:
        arms.holds(camera, "stale")
        before, now = arms.counts("received"), arms.counts("received")
        assert {name for name in CAMERAS if now[name] == before[name]} == {camera}
        assert max(chunk["origin_stamp_ns"] for chunk in arms.watch.chunks) <= arms.newest_ns(camera)
    finally:
        arms.cell.stalled.discard(camera)
    began_ns = arms.newest_ns(camera)
    arms.watch.armed("it goes on by itself")
    arms.watch.until(lambda: arms.watch.chunks[-1]["origin_stamp_ns"] > began_ns, "its images again")


WRONG = {
    "bad_size": ({}, f"{HEIGHT // 2} x {WIDTH}, expected {HEIGHT} x {WIDTH}"),
    "bad_step": ({"step": 10}, f"10 bytes for a row of {WIDTH} x 3"),
    "bad_encoding": ({"encoding": "16UC1"}, "'16UC1' is a depth image"),
    "bad_data": ({"data": np.zeros(7, np.uint8)}, "7 bytes, expected"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_an_image_that_does_not_fit_is_refused_by_the_name_of_its_camera(arms: Arms, fault: str) -> None:
    changes, detail = WRONG[fault]
    camera = CAMERAS[list(WRONG).index(fault)]
    before = arms.counts("refused")
    picture = arms.cell.pictures[camera]
    arms.cell.changes[camera] = changes
    if fault == "bad_size":
        arms.cell.pictures[camera] = np.ascontiguousarray(picture[: HEIGHT // 2])
    try:
        arms.agent.logs(f"{camera}: ", f"{fault}: {detail}")
        [line] = {
            text.partition("]: ")[2] for text in arms.agent.child.output.splitlines() if f"{fault}: {detail}" in text
        }
        assert line.startswith(f"{camera}: ")
        arms.holds(camera, "stale")
        now = arms.counts("refused")
        assert {name for name in CAMERAS if now[name] > before[name]} == {camera}
    finally:
        arms.cell.changes[camera], arms.cell.pictures[camera] = {}, picture
    arms.watch.armed("it goes on by itself")


def test_the_oldest_of_the_four_within_the_tolerance_is_the_origin(arms: Arms) -> None:
    """What a chunk answers is as old as the oldest image in it."""
    arms.cell.lag_ms["front"] = TOLERANCE_MS // 2
    began_ns = time.time_ns()
    try:
        arms.watch.until(
            lambda: len([c for c in arms.watch.chunks if c["origin_stamp_ns"] > began_ns]) >= 5, "five chunks"
        )
        origins = {chunk["origin_stamp_ns"] for chunk in arms.watch.chunks if chunk["origin_stamp_ns"] > began_ns}
        assert origins <= set(arms.cell.stamps_ns["front"])
    finally:
        arms.cell.lag_ms["front"] = 0


@pytest.mark.parametrize("camera", ["left_wrist", "above"])
def test_a_camera_beyond_the_tolerance_is_named_and_nothing_is_made_of_four_instants(arms: Arms, camera: str) -> None:
    arms.cell.lag_ms[camera] = 4 * TOLERANCE_MS
    try:
        arms.holds(camera, "skew")
        said = arms.agent.diagnosed("observation", ERROR, rf"behind '\w+', tolerance {TOLERANCE_MS} ms$")
        assert int(said["fault skew"]) > 0
    finally:
        arms.cell.lag_ms[camera] = 0
    arms.watch.armed("it goes on by itself")
