"""The prompt of a policy with language, as text and as token ids, and how another text becomes ids.

The manifest's `network` holds the prompt that the policy was made with. A checkpoint's tokenizer.json, if there is one,
gives the ids of other prompts with the `tokenizers` library (extra `language`), which executes nothing from the file.
This module never sets a prompt, and never guesses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.tokenizer import TOKENIZER, PromptError, encode, read_tokenizer

INSTRUCTION = "{instruction}"
SHOWN_CHARS = 80


@dataclass(frozen=True)
class PromptTemplate:
    """The prompt that a checkpoint was made with, and the form of every other.

    ids: with all that tokenizer and form add. text: the instruction alone. template: the tokenizer's input, with the
    instruction in its place: in lower case if `lower`; if `plain` (pi0.5), without spaces at its ends and with spaces
    for underscores and line breaks. end: the last id, added if the tokenizer does not add it. limit: the largest number
    of ids; None: exactly as many as these. In a manifest the ids are `prompt` and each other field is `prompt_` and its
    name. Raises ValueError, naming that key.
    """

    ids: tuple[int, ...]
    text: str = ""
    template: str = INSTRUCTION
    lower: bool = False
    end: int | None = None
    limit: int | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        if not self.ids or not all(type(each) is int and each >= 0 for each in self.ids):
            raise ValueError(f"prompt: {list(self.ids)!r} is not a list of token ids")
        for each in fields(self)[1:]:
            value, kinds = getattr(self, each.name), str(each.type).replace("None", "NoneType").split(" | ")
            if type(value).__name__ not in kinds:
                raise ValueError(f"prompt_{each.name}: {value!r} is not {' or '.join(kinds)}")
        if self.template.count(INSTRUCTION) != 1:
            raise ValueError(f"prompt_template: {self.template!r} does not hold {INSTRUCTION} once")
        if self.end is not None and self.ids[-1] != self.end:
            raise ValueError(f"prompt: ends in {self.ids[-1]}, not in prompt_end, {self.end}")
        if self.limit is not None and len(self.ids) > self.limit:
            raise ValueError(f"prompt: {len(self.ids)} tokens, more than prompt_limit, {self.limit}")

    @classmethod
    def of(cls, network: Mapping[str, Any]) -> PromptTemplate:
        """From the manifest's `network`, whose other keys are ignored. Raises ValueError."""
        if not isinstance(network.get("prompt"), list):
            raise ValueError(f"prompt: {network.get('prompt')!r} is not a list of token ids")
        named = {each.name: f"prompt_{each.name}" for each in fields(cls)[1:]}
        return cls(tuple(network["prompt"]), **{name: network[key] for name, key in named.items() if key in network})

    def to_network(self) -> dict[str, Any]:
        """The keys that `of` reads; None and false are left out."""
        values = {f"prompt_{each.name}": getattr(self, each.name) for each in fields(self)[1:]}
        said = {key: value for key, value in values.items() if value is not None and value is not False}
        return {"prompt": list(self.ids), **said}

    def formatted(self, text: str) -> str:
        """The text that the tokenizer gets for this instruction."""
        text = text.lower() if self.lower else text
        text = text.strip().replace("_", " ").replace("\n", " ") if self.plain else text
        return self.template.replace(INSTRUCTION, text)

    def completed(self, ids: list[int]) -> tuple[int, ...]:
        """With the last id added if it is missing. Raises PromptError for a length that this policy cannot take."""
        done = (*ids, self.end) if self.end is not None and ids[-1:] != [self.end] else tuple(ids)
        if self.limit is not None and len(done) > self.limit:
            raise PromptError(f"prompt: {len(done)} tokens, but this policy takes {self.limit} at most")
        if self.limit is None and len(done) != len(self.ids):
            raise PromptError(f"prompt: {len(done)} tokens, but this policy takes exactly {len(self.ids)}")
        return done


KEYS = frozenset({"prompt", *(f"prompt_{each.name}" for each in fields(PromptTemplate)[1:])})  # of a manifest's network


class Language:
    """Texts to ids for one checkpoint. tokenizer: its tokenizer.json, if there is one."""

    def __init__(self, prompt: PromptTemplate, tokenizer: Path | None) -> None:
        self.prompt, self._path = prompt, tokenizer

    def prepare(self) -> str:
        """Read the tokenizer now, so that no prompt waits for it. Returns why only the stored prompt can be used; empty
        if others can."""
        if self._path is None:
            return f"no {TOKENIZER}"
        try:
            self._tokenizer  # noqa: B018  (read once, here)
        except PromptError as error:
            return str(error)
        return ""

    def check(self) -> None:
        """Check that the tokenizer gives the stored prompt's ids; skipped without the library. Raises PromptError."""
        if self._path is not None and self.prompt.text and find_spec("tokenizers") is not None:
            made = self.prompt.completed(self._encoded(self.prompt.text))
            if made != self.prompt.ids:
                raise PromptError(f"{self._path}: gives {list(made)} for the prompt, whose ids are {self.prompt.ids}")

    def ids(self, text: str) -> tuple[int, ...]:
        """All token ids of this instruction. Raises PromptError."""
        if text == self.prompt.text:
            return self.prompt.ids
        if self._path is None:
            shown = self.prompt.text[:SHOWN_CHARS]
            raise PromptError(f"prompt: the checkpoint has no {TOKENIZER}: it takes only '{shown}'")
        return self.prompt.completed(self._encoded(text))

    def _encoded(self, text: str) -> list[int]:
        return encode(self._tokenizer, self.prompt.formatted(text), str(self._path))

    @cached_property
    def _tokenizer(self) -> Any:
        assert self._path is not None
        return read_tokenizer(self._path)


def language_of(network: Any, folder: Path) -> Language | None:
    """The language of a checkpoint's folder, by its manifest's `network`; None if the policy takes no prompt. Raises
    ValueError, naming the key."""
    if not isinstance(network, Mapping) or "prompt" not in network:
        return None
    path = folder / TOKENIZER
    return Language(PromptTemplate.of(network), path if path.is_file() else None)
