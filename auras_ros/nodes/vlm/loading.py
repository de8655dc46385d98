"""The slow part of configure: the model is read and checked, becomes an engine, answers once, and gets its adapters. No
topics here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.checkpoints.vlm.chat import Message
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.checkpoints.vlm.pictures import PictureError
from auras_ros.device import DeviceError, checked
from auras_ros.device.cores import occupy
from auras_ros.device.make import kind_of
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import InvalidRequestError, VlmRequest
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.parameters import ParameterError, UnloadableError
from auras_ros.ros.refusals import SETTINGS_ERRORS

_OWN = (CheckpointError, DeviceError, ParameterError, PromptError, PictureError, InvalidRequestError, OSError)
BAD_SETTINGS_ERRORS: tuple[type[Exception], ...] = (*_OWN, *SETTINGS_ERRORS)
TOLD_ERRORS = (DeviceError, InvalidRequestError, ParameterError)  # of those, the ones that other nodes are told in full
TRIAL_PX = 64


def load_engine(settings: VlmSettings, anywhere: frozenset[int], say: Callable[[str], None]) -> Engine:
    """An engine that runs. anywhere: the process's cores where none are set. say: is told each step."""
    settings.check()
    folder = resources.checkpoint(settings.checkpoint)
    cores, threads = checked("vlm", settings.core_numbers(), settings.threads)
    _place(anywhere if cores is None else cores)
    occupy("vlm", cores, threads)
    say("weights")
    checkpoint = open_vlm(folder, settings.dtype, kind_of(settings.device))
    say("warm-up")
    with ExitStack() as refused:
        try:
            engine = make_engine(checkpoint, settings.engine_options())
        except ValueError as error:
            is_of_file = settings.stage_profile or settings.lora_ways
            kind = UnloadableError if is_of_file else ParameterError
            raise error if isinstance(error, DeviceError) else kind(f"vlm: {error}") from error
        refused.callback(engine.close)
        occupy("vlm", None, threads)  # the stages' own threads have changed the number of all later ones
        engine.start()
        _try(engine, settings)
        say("adapters")
        set_adapters(engine, settings.adapter_folders())
        refused.pop_all()
    return engine


def set_adapters(engine: Engine, folders: Mapping[str, Path]) -> None:
    """As the parameter `loras` names them. Raises ParameterError; then nothing has changed."""
    if folders and engine.adapters is None:
        raise ParameterError("vlm: loras: this engine takes none (max_loras)")
    try:
        engine.set_adapters(folders)
    except ValueError as error:
        raise UnloadableError(f"vlm: loras: {error}") from error


def conversation(system: str, text: str, images: int) -> list[Message]:
    """What the model is asked: the images, then the text."""
    begin: list[Message] = [{"role": "system", "content": system}] if system else []
    return [
        *begin,
        {"role": "user", "content": [*({"type": "image"} for _ in range(images)), {"type": "text", "text": text}]},
    ]


def _try(engine: Engine, settings: VlmSettings) -> None:
    """Answer once: the first question finds everything warm, and a folder that cannot answer is refused."""
    images = [np.full((TRIAL_PX, TRIAL_PX, 3), 128, np.uint8)] if settings.camera_names() else []
    prompt = engine.checkpoint.prompts.chat(conversation(settings.system, "?", len(images)), images)
    answer = engine.submit(VlmRequest(prompt, engine.checkpoint.sampling, max_tokens=1)).result()
    if answer.finish == "error":
        raise CheckpointError(f"{settings.checkpoint}: a first question was not answered: {answer.detail}")


def _place(cores: Iterable[int]) -> None:
    """Move all threads of the process there; those to come inherit it from them. What is missing is named later, where
    the model's thread occupies its cores."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(thread), cores)
