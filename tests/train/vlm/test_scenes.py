"""What is said to be true of a scene, counted again in its picture or by other means.

Guards: left and right swapped; a tee whose place is its frame's origin; a thing in the way that is not; a picture that
is not the camera's; contents that a seed does not fix.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.sim.pusht.things import Disc
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.train.vlm.questions import HELD_OUT, TOPICS
from auras_ros.train.vlm.scenes import COLOURS, GOAL, HALF_WAY_PX, Scene, draw_scene

FAR = np.array([30.0, 480.0])
SIZE = 512


def scene(x: float, y: float, degrees_to_turn: float, *things: tuple[str, float, float, float]) -> Scene:
    """A tee whose centre of area lies at (x, y) and that is to turn by so much, clockwise in the picture."""
    angle = math.pi / 4 - math.radians(degrees_to_turn)
    away = 30 * 0.5 * 4 / 7 + 75 * 3 / 7  # bar of 120 x 30 and stem of 30 x 90 below it
    tee = np.array([x + away * math.sin(angle), y - away * math.cos(angle), angle])
    discs = tuple(Disc(cx, cy, radius, COLOURS[name]) for name, cx, cy, radius in things)
    return Scene(tee, FAR, discs, tuple(name for name, *_ in things))


def answer(name: str, given: Scene, colour: str = "") -> str | None:
    return TOPICS[name].answer(given, colour)


def tee_pixels(given: Scene) -> np.ndarray:
    """Where the picture shows the tee: the difference to one with the tee elsewhere, without its goal."""
    table = PosedTable()
    image = table.picture(given.tee, given.pusher, size_px=SIZE).astype(int)
    return np.argwhere((np.abs(image - (143, 163, 184)) < 30).all(-1))[:, ::-1]


@pytest.mark.parametrize(("x", "y", "turn"), [(120, 150, 30), (300, 380, -100), (256, 256, 0)])
def test_the_place_is_where_the_picture_shows_the_tee(x: float, y: float, turn: float) -> None:
    given = scene(x, y, turn)
    assert np.allclose(given.centre, (x, y))
    assert np.allclose(tee_pixels(given).mean(0), (x, y), atol=2)
    assert answer("place", given) == f"x {round(x / 5.12)} y {round(y / 5.12)}"


@pytest.mark.parametrize(
    ("turn", "said"), [(40, "right"), (-40, "left"), (169, "right"), (-169, "left"), (0, "neither")]
)
def test_the_turn_is_the_shorter_one_as_seen_in_the_picture(turn: float, said: str) -> None:
    """The stem's direction, measured in pixels: the goal's points down and left."""
    given = scene(200, 200, turn)
    assert answer("turn", given) == said
    points = tee_pixels(given) - given.centre
    far = points[np.linalg.norm(points, axis=1) > 68]  # the stem's end alone is so far from the centre
    is_at = math.atan2(*far.mean(0)[::-1])
    wanted = math.atan2(1, -1)
    clockwise = math.degrees((wanted - is_at + math.pi) % (2 * math.pi) - math.pi)  # y points down
    assert clockwise == pytest.approx(turn, abs=4)


@pytest.mark.parametrize("turn", [7, -8, 175, 180])
def test_a_turn_that_is_nearly_none_or_half_a_circle_is_not_asked(turn: float) -> None:
    assert answer("turn", scene(200, 200, turn)) is None


@pytest.mark.parametrize("pose", [(0, 0, 0), (2, 0, 0), (4, 3, 0), (0, 0, 0.02), (0, 3, 0.2), (80, 0, 1)])
def test_the_coverage_is_the_simulators(pose: tuple[float, float, float]) -> None:
    given = Scene(GOAL + pose, FAR, (), ())
    world = PushTWorld()
    world.reset(0)
    block = world._env.block
    block.angle, block.position = given.tee[2], tuple(given.tee[:2])
    coverage = world._env._get_coverage()
    assert given.coverage == pytest.approx(coverage, abs=1e-6)
    assert answer("goal", given) == ("yes" if coverage > 0.95 else "no")


def test_something_is_in_the_way_if_it_touches_the_band_between_tee_and_goal() -> None:
    """The tee on the left of its goal at the same height: the band is a rectangle with round ends."""
    goal = Scene(GOAL, FAR, (), ()).centre
    left = 90.0
    for x, off, blocks in [
        (150, HALF_WAY_PX + 14, True),
        (150, HALF_WAY_PX + 16, False),
        (150, -HALF_WAY_PX - 14, True),
        (150, 0, True),
        (goal[0] + HALF_WAY_PX + 14, 0, True),
        (goal[0] + HALF_WAY_PX + 16, 0, False),
        (goal[0] + 100, 0, False),
    ]:
        given = scene(left, float(goal[1]), 20, ("red", float(x), float(goal[1] + off), 15.0))
        assert answer("way", given) == ("yes" if blocks else "no"), (x, off)
    assert answer("way", scene(left, 200, 20)) == "no"


def test_things_are_counted_by_colour() -> None:
    things = [("red", 50, 50, 15), ("red", 50, 100, 15), ("black", 50, 150, 12), ("purple", 50, 200, 12)]
    given = scene(300, 300, 20, *things)
    assert [answer("count", given, colour) for colour in COLOURS] == ["2", "0", "1", "1"]
    assert answer("colour", given) == "red"
    assert answer("colour", scene(300, 300, 20)) == "none"
    assert answer("colour", scene(300, 300, 20, *things[1:])) is None


def test_drawn_scenes_show_what_they_say() -> None:
    """Counted in the picture: connected areas of each colour. Nothing overlaps, and each seed has its scene."""
    cv2 = pytest.importorskip("cv2")
    table = PosedTable()
    for seed in range(HELD_OUT, HELD_OUT + 25):
        given = draw_scene(seed)
        image = table.picture(given.tee, given.pusher, given.things, SIZE).astype(int)
        for name, rgb in COLOURS.items():
            inside = (np.abs(image - rgb) <= 55).all(-1).astype(np.uint8)
            inside = cv2.morphologyEx(inside, cv2.MORPH_OPEN, np.ones((9, 9), np.uint8))
            assert cv2.connectedComponents(inside)[0] - 1 == given.count(name), (seed, name)
        again = draw_scene(seed)
        assert np.array_equal(given.tee, again.tee)
        assert given.things == again.things


def test_without_things_the_picture_is_the_cameras() -> None:
    """Also where the pusher touches the tee, which the simulator marks."""
    world, table = PushTWorld(), PosedTable()
    for seed in range(3):
        world.reset(seed)
        assert np.array_equal(table.picture(world.tee, world.agent), world.image())
        table.picture(world.tee, world.agent, [Disc(50, 50, 20, (1, 2, 3))])  # leaves nothing behind
    target = np.array(world.tee[:2])
    touched = False
    for _ in range(20):
        world.step(target)
        touched = touched or world._env.n_contact_points > 0
    assert touched
    difference = np.abs(table.picture(world.tee, world.agent).astype(int) - world.image())
    assert difference.mean() < 0.5
