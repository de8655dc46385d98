"""OpenVLA's prompt: its template, the empty token at its end, and the ids that the folder's tokenizer gives.

Without tokenizer.json the ids are in robot.json, and no other prompt can be set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.tokenizer import TOKENIZER, PromptError
from auras_ros.models.openvla import PROMPT_END
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.prompt import Language, PromptTemplate

TEMPLATE = "In: What action should the robot take to {instruction}?\nOut:"
LIMIT = 64  # tokens of a prompt, unless robot.json says otherwise: instructions of OpenVLA's data sets make 15 to 40


def prompt(source: Path, robot: Robot, bos: int) -> PromptTemplate:
    """The initial prompt. bos: the first id of every sentence in the language model's training. Raises
    CheckpointError."""
    if robot.prompt is None:
        raise CheckpointError(f"{robot.path}: prompt: missing: OpenVLA needs an instruction")
    given, file = robot.openvla.get("prompt_ids"), source / TOKENIZER
    with refusing(robot.path, ValueError):
        if given is None:
            return _begins(_encoded(file, robot), bos, str(file))
        if not isinstance(given, list) or not given:
            raise ValueError(f"openvla: prompt_ids: {given!r} is not a list of token ids")
        ids = tuple(given)
        ids = ids if ids[-1:] == (PROMPT_END,) else (*ids, PROMPT_END)
        made = PromptTemplate(ids, robot.prompt, TEMPLATE, True, PROMPT_END, _limit(robot, file))
        Language(made, file if file.is_file() else None).check()
    return _begins(made, bos, f"{robot.path}: openvla: prompt_ids")


def _begins(made: PromptTemplate, bos: int, where: str) -> PromptTemplate:
    if made.ids[0] != bos:
        raise CheckpointError(f"{where}: the prompt begins with id {made.ids[0]}, not with the sentence's first, {bos}")
    return made


def _encoded(file: Path, robot: Robot) -> PromptTemplate:
    if not file.is_file():
        raise CheckpointError(
            f"{file}: file not found, so nothing makes token ids of the prompt: add the file (a fast tokenizer's, of "
            f"transformers), or give the ids as {robot.path}: openvla: prompt_ids"
        )
    assert robot.prompt is not None
    form = PromptTemplate((PROMPT_END,), "", TEMPLATE, True, PROMPT_END, _limit(robot, file))
    try:
        ids = Language(form, file).ids(robot.prompt)
    except PromptError as error:
        raise CheckpointError(str(error) if str(error).startswith(str(file)) else f"{robot.path}: {error}") from error
    return PromptTemplate(ids, robot.prompt, TEMPLATE, True, PROMPT_END, form.limit)


def _limit(robot: Robot, file: Path) -> int | None:
    """Room for prompts of other lengths, if others are possible. Raises ValueError."""
    value: Any = robot.openvla.get("prompt_limit", LIMIT if file.is_file() else None)
    if value is not None and (type(value) is not int or value < 2):
        raise ValueError(f"openvla: prompt_limit: {value!r} is not a whole number of 2 or more")
    return value
