"""`auras_ros.load_vlm(...).ask(...)`: a vision-language model called from Python, without a node or a server.

The engine is the one of `auras serve` and of the node `vlm`; it runs in a thread of its own until `close`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros import resources
from auras_ros.checkpoints.vlm.chat import Message, VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.device.make import kind_of
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import Answer, Grammar, VlmRequest
from auras_ros.observation import REQUEST_FILES, ObservationError, decode_compressed

Picture = str | Path | NDArray[np.uint8]
"""A file (PNG, JPEG or WebP), or RGB [height, width, 3]."""

MAX_TOKENS = 256


class DirectVlm:
    """Made by `load_vlm`. `ask` may be called from several threads; what they ask decodes together."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name = engine.checkpoint.name

    def ask(
        self,
        images: Picture | Iterable[Picture] | None,
        text: str,
        *,
        system: str = "",
        adapter: str = "",
        json_schema: Mapping[str, Any] | None = None,
        max_tokens: int = MAX_TOKENS,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> str:
        """The answer's text.

        images: one picture, several in their order, or None. system: the conversation's first words. adapter: a name
        of `load_vlm`'s adapters. json_schema: what the answer must be (needs auras_ros[grammar]). temperature: None is
        the model's own; 0 always takes the likeliest token. Raises ValueError for what cannot be asked, RuntimeError
        if the engine fails.
        """
        return self.answer(
            self.prompt(images, text, system),
            adapter=adapter,
            json_schema=json_schema,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        ).text

    def prompt(self, images: Picture | Iterable[Picture] | None, text: str, system: str = "") -> VlmPrompt:
        """The pictures and the text as the model's chat template places them. Raises ValueError or OSError."""
        pictures = [_pixels(each) for each in _listed(images)]
        begin: list[Message] = [{"role": "system", "content": system}] if system else []
        content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
        messages: list[Message] = [*begin, {"role": "user", "content": content}]
        return self._engine.checkpoint.prompts.chat(messages, pictures)

    def answer(
        self,
        prompt: VlmPrompt,
        *,
        adapter: str = "",
        json_schema: Mapping[str, Any] | None = None,
        max_tokens: int = MAX_TOKENS,
        temperature: float | None = None,
        seed: int | None = None,
    ) -> Answer:
        """As `ask`, with tokens, times, why it ended, and a task head's result."""
        sampling = self._engine.checkpoint.sampling
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
        grammar = None if json_schema is None else Grammar("json_schema", json.dumps(json_schema))
        request = VlmRequest(prompt, sampling, max_tokens=max_tokens, seed=seed, adapter=adapter, grammar=grammar)
        answer = self._engine.submit(request).result()
        if answer.finish in ("error", "cancelled"):
            raise RuntimeError(f"{self.name}: {answer.detail or answer.finish}")
        return answer

    def close(self) -> None:
        """Ends the engine's thread; what is asked meanwhile fails."""
        self._engine.close()

    def __enter__(self) -> DirectVlm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(
    checkpoint: str | Path,
    *,
    device: str = "cpu",
    dtype: str = "auto",
    adapters: Mapping[str, str | Path] | None = None,
) -> DirectVlm:
    """See `auras_ros.load_vlm`."""
    folder = checkpoint if isinstance(checkpoint, Path) else resources.checkpoint(checkpoint)
    folders = {name: resources.adapter(str(each)) for name, each in (adapters or {}).items()}
    options = EngineOptions(device=kind_of(device), max_loras=len(folders))
    engine = make_engine(open_vlm(folder, dtype, options.device), options)
    engine.start()
    try:
        engine.set_adapters(folders)
    except BaseException:
        engine.close()
        raise
    return DirectVlm(engine)


def _listed(images: Picture | Iterable[Picture] | None) -> list[Picture]:
    if images is None:
        return []
    if isinstance(images, str | Path) or hasattr(images, "__array_interface__"):
        return [images]  # type: ignore[list-item]  # a Pillow image is an array too
    return list(images)


def _pixels(picture: Picture) -> NDArray[np.uint8]:
    """RGB [height, width, 3] of a file or an array."""
    if isinstance(picture, str | Path):
        try:
            return decode_compressed(Path(picture).expanduser().read_bytes(), rules=REQUEST_FILES)
        except ObservationError as error:
            raise ValueError(f"{picture}: {error.fault.detail}") from error
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        what = f"{pixels.dtype} {list(pixels.shape)}"
        raise ValueError(f"image: {what}, expected uint8 RGB [height, width, 3] (of Pillow: convert('RGB'))")
    return pixels
