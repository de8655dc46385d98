"""The training set: pictures of scenes, their answers, and what else the vision part learns from, on disk.

Pictures are a memory map, so that they need no more memory than the batches read; everything else is small.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from auras_ros.report.result import Say
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.sim.pusht.world import IMAGE_PX, SIZE_PX, SUCCESS_COVERAGE
from auras_ros.train.push_table import corners
from auras_ros.train.vlm.questions import TOPICS
from auras_ros.train.vlm.scenes import COLOURS, Scene, draw_scene

GRID = 12  # cells of the maps on a side; training resamples them to the patches of the vision part
GREEN, GREY = (144, 238, 144), (143, 163, 184)  # of the goal and of the tee's inside, as they are drawn
SHADE = 24
MAPS = len(COLOURS) + 3  # things of each colour, things in the way, goal, tee
TEE = MAPS - 1
FACTS = 16 + 2 + 2 + len(COLOURS)  # corners; turn; coverage; number of things
REPORT_SCENES = 1000


@dataclass(frozen=True, eq=False)
class Pictures:
    """N scenes. images: uint8 [N, 96, 96, 3]. answers: int64 [N, columns], the place of each answer among its type's,
    -1 where a scene leaves it open; columns as in `COLUMNS`. places: the tee's centre, percent of the table [N, 2].
    maps: [N, GRID * GRID, MAPS]; facts: [N, FACTS]."""

    images: NDArray[np.uint8]
    answers: NDArray[np.int64]
    places: NDArray[np.float32]
    maps: NDArray[np.float16]
    facts: NDArray[np.float32]

    @classmethod
    def load(cls, folder: Path) -> Pictures:
        return cls(**{each.name: np.load(folder / f"{each.name}.npy", mmap_mode="r") for each in fields(cls)})


COLUMNS = [(name, colour) for name, topic in TOPICS.items() if name != "place" for colour in topic.colours]


def render(folder: Path, count: int, first: int, progress: Say) -> Pictures:
    """The scenes of the seeds from `first` on. The folder appears whole or not at all."""
    if not folder.exists():
        partial, table, began = folder.with_name(folder.name + ".partial"), PosedTable(), time.monotonic()
        partial.mkdir(exist_ok=True)
        answers, places, maps, facts = [], [], [], []
        images = open_memmap(partial / "images.npy", "w+", np.uint8, (count, IMAGE_PX, IMAGE_PX, 3))
        for number in range(count):
            scene = draw_scene(first + number)
            images[number] = table.picture(scene.tee, scene.pusher, scene.things)
            answers.append(_answers(scene))
            places.append(scene.centre / SIZE_PX * 100)
            maps.append(_maps(scene, images[number]))
            facts.append(_facts(scene))
            if (number + 1) % REPORT_SCENES == 0:
                left_s = (time.monotonic() - began) / (number + 1) * (count - number - 1)
                progress(f"scene {number + 1}/{count}, {left_s:.0f} s left")
        np.save(partial / "answers.npy", np.array(answers))
        np.save(partial / "places.npy", np.array(places, np.float32))
        np.save(partial / "maps.npy", np.array(maps, np.float16))
        np.save(partial / "facts.npy", np.array(facts, np.float32))
        images.flush()
        partial.replace(folder)
    return Pictures.load(folder)


def _answers(scene: Scene) -> list[int]:
    given = [(TOPICS[name].answers, TOPICS[name].answer(scene, colour)) for name, colour in COLUMNS]
    return [-1 if answer is None else answers.index(answer) for answers, answer in given]


def _maps(scene: Scene, image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """For each cell how many things of each colour lie there, how many of them in the way, and how much of it shows the
    goal and the tee. A thing is shared by the four cells nearest to its centre, so that a map's sum is a number."""
    made = np.zeros((GRID + 2, GRID + 2, MAPS), np.float32)
    for thing, name, blocks in zip(scene.things, scene.names, scene.in_the_way, strict=True):
        column, row = np.array([thing.x, thing.y]) / SIZE_PX * GRID + 0.5
        for y in (int(row), int(row) + 1):
            for x in (int(column), int(column) + 1):
                share = (1 - abs(row - y)) * (1 - abs(column - x))
                made[y, x, list(COLOURS).index(name)] += share
                made[y, x, len(COLOURS)] += blocks * share
    inner = made[1:-1, 1:-1]
    for place, colour in ((TEE - 1, GREEN), (TEE, GREY)):
        seen = (np.abs(image.astype(np.int16) - np.array(colour)) < SHADE).all(-1)
        inner[..., place] = seen.reshape(GRID, IMAGE_PX // GRID, GRID, IMAGE_PX // GRID).mean((1, 3))
    return inner.reshape(GRID * GRID, MAPS)


def _facts(scene: Scene) -> list[float]:
    """About [-1, 1] each."""
    points = corners(scene.tee).ravel() / (SIZE_PX / 2) - 1
    success = (scene.coverage - SUCCESS_COVERAGE) * 10  # as fine as the question needs it
    counts = [scene.count(name) / 4 for name in COLOURS]
    return [*points, np.sin(scene.turn), np.cos(scene.turn), scene.coverage, max(success, -1.0), *counts]
