"""A robot's instruction as token ids of a foreign checkpoint's training, by the tokenizer in its folder.

LeRobot names its tokenizer and leaves it out of the folder: tokenizer.json must be added. Nothing is downloaded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.tokenizer import TOKENIZER, PromptError, encode, read_tokenizer
from auras_ros.policies.flow_prefix import BINS
from auras_ros.policies.loaders.lerobot import LeRobotFolder
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.prompt import PromptTemplate

TOKENIZE = "tokenizer_processor"
BOS = {"pi0": 2, "pi05": 2}  # by type: the first id of PaliGemma's tokenizer; SmolVLM2's adds none
MOST_STATES = 1024
SAMPLES = 32  # random states that test the table of numbers
RIGHT = {"padding_side": ("right",), "truncation": (True,), "task_key": ("task",)}


def encoder(folder: LeRobotFolder) -> Callable[[str], list[int]]:
    """Text -> ids, with all that the tokenizer adds. Raises CheckpointError if the folder has no tokenizer.json."""
    path = folder.path / TOKENIZER
    if not path.is_file():
        step = folder.step(TOKENIZE)
        name = (step.config.get("tokenizer_name") if step else None) or folder.config.get("vlm_model_name", "")
        raise CheckpointError(f"{path}: file not found; copy that of the tokenizer it was trained with, {name}")
    try:
        tokenizer = read_tokenizer(path)
    except PromptError as error:
        raise CheckpointError(str(error)) from error
    bos = BOS.get(str(folder.config.get("type")))
    if bos is not None and (begin := _encoded(tokenizer, "a", path)[:1]) != [bos]:
        raise CheckpointError(f"{path}: a text begins with ids {begin}, not with {bos} as in training")
    return lambda text: _encoded(tokenizer, text, path)


def _encoded(tokenizer: Any, text: str, path: Path) -> list[int]:
    """Raises CheckpointError."""
    with refusing(path, PromptError):
        return encode(tokenizer, text, path)


def instruction(robot: Robot, folder: Path) -> str:
    """The robot's instruction. Raises CheckpointError if robot.json has none."""
    if robot.prompt is None:
        raise CheckpointError(f"{robot.path}: key 'prompt' is missing: {folder} takes an instruction")
    return robot.prompt


def check_step(folder: LeRobotFolder) -> Mapping[str, Any]:
    """The tokenizer's step, if there is one, with supported settings only. Raises CheckpointError."""
    step = folder.step(TOKENIZE)
    if step is None:
        return {}
    for key, supported in RIGHT.items():
        value = step.config.get(key, supported[0])
        if value not in supported:
            listed = ", ".join(map(repr, supported))
            raise CheckpointError(f"{step.file}: {TOKENIZE}: {key}: {value!r} is not supported; expected {listed}")
    return step.config


def prompt_keys(
    folder: LeRobotFolder,
    robot: Robot,
    encode: Callable[[str], list[int]],
    template: str,
    limit: int,
    plain: bool = False,
) -> dict[str, Any]:
    """The manifest's keys of the robot's instruction. Raises CheckpointError if it is too long."""
    text = instruction(robot, folder.path)
    text = text if plain else text.rstrip("\n")  # the template adds its own
    ids = encode(PromptTemplate((0,), text, template, plain=plain).formatted(text))
    if len(ids) > limit:
        raise CheckpointError(
            f"{robot.path}: prompt: {len(ids)} tokens, but {folder.file} leaves room for {limit} (tokenizer_max_length)"
        )
    return PromptTemplate(tuple(ids), text, template, limit=limit, plain=plain).to_network()


def spelling(
    folder: LeRobotFolder, encode: Callable[[str], list[int]], start: str, states: int
) -> tuple[list[list[int]], list[int]]:
    """pi0.5's numbers: ids of -1 to 255 in a sequence, and those of the end of the prompt.

    The ids of a number are those that it adds to a text. Random states test that the whole is the sum of these parts,
    because a tokenizer might join a number with its neighbours. Raises CheckpointError if it does.
    """
    if states > MOST_STATES:
        raise folder.refused(f"max_state_dim: {states} is more than {MOST_STATES}")
    first = encode(start)
    numbers = [encode(f"{start} {number}")[len(first) :] for number in range(-1, BINS)]
    whole = encode(f"{start} 0;\nAction: ")
    after = whole[len(first) + len(numbers[1]) :]
    dice = random.Random(0)
    for _ in range(SAMPLES):
        bins = [dice.randint(-1, BINS - 1) for _ in range(states)]
        parts: Sequence[int] = [*first, *(id_ for each in bins for id_ in numbers[each + 1]), *after]
        if encode(f"{start} {' '.join(map(str, bins))};\nAction: ") != parts:
            raise CheckpointError(
                f"{folder.path}: the tokenizer joins numbers with their neighbours: the state of every frame "
                f"cannot be spelt from a table"
            )
    return numbers, after
