"""Texts to token ids as a checkpoint's tokenizer makes them, and prompts that cannot be used refused with the reason.

Guards: a tokenizer of another checkpoint; braces in an instruction that are taken for a place; a text that is cut.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.policies.checkpoint import load
from auras_ros.policies.prompt import Language, PromptTemplate, language_of
from tests.policies import vision_language_checkpoints as tiny

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_tokenizer(tmp_path_factory.mktemp("language") / "tokenizer.json")


def stored(**changes: Any) -> PromptTemplate:
    return PromptTemplate.of({**tiny.prompt(), **changes})


def test_the_stored_prompt_needs_no_tokenizer(tokenizer: Path) -> None:
    assert Language(stored(), None).ids(tiny.TEXT) == tuple(tiny.IDS)
    assert Language(stored(), None).prepare() == "no tokenizer.json"
    assert Language(stored(), tokenizer).prepare() == ""


def test_a_new_text_stands_in_the_template_and_ends_as_it_must(tokenizer: Path) -> None:
    language = Language(stored(prompt_limit=20), tokenizer)
    language.check()
    ids = language.ids("pull the red cup away")
    assert ids == (tiny.BEGIN, 10, 11, 12, 21, 13, 14, 15, 23, 21, 24, 25, 26, 16, 17, tiny.END)
    assert language.ids(tiny.TEXT) == tuple(tiny.IDS)


def test_the_file_that_cuts_and_pads_does_neither(tokenizer: Path) -> None:
    raw = json.loads(tokenizer.read_text())
    assert raw["truncation"]["max_length"] == 5
    assert raw["padding"] is not None
    assert len(Language(stored(prompt_limit=30), tokenizer).ids("push the red cup away from the wall")) == 19


def test_an_instruction_is_text_and_no_template() -> None:
    prompt = stored(prompt_lower=True)
    assert prompt.formatted("PUSH {instruction} {x}") == "In: What should the robot do to push {instruction} {x}?\nOut:"
    braces = PromptTemplate((1,), template='{"task": "{instruction}"}')
    assert braces.formatted("{0}") == '{"task": "{0}"}'
    assert stored().formatted("PUSH") == "In: What should the robot do to PUSH?\nOut:"


@pytest.mark.parametrize(
    ("limit", "text", "said"),
    [
        (None, "push the block now", "prompt: 15 tokens, but this policy takes exactly 14"),
        (None, "push", "prompt: 12 tokens, but this policy takes exactly 14"),
        (15, "push the block now please", "prompt: 16 tokens, but this policy takes 15 at most"),
    ],
)
def test_a_length_that_does_not_fit_is_refused(tokenizer: Path, limit: int | None, text: str, said: str) -> None:
    language = Language(stored() if limit is None else stored(prompt_limit=limit), tokenizer)
    with pytest.raises(PromptError, match=said):
        language.ids(text)


def test_as_many_tokens_are_taken_where_the_length_is_fixed(tokenizer: Path) -> None:
    assert len(Language(stored(), tokenizer).ids("pull the cup")) == 14


def test_without_a_tokenizer_no_other_prompt_is_known() -> None:
    with pytest.raises(PromptError, match=r"has no tokenizer.json: it takes only 'push the block'"):
        Language(stored(), None).ids("pull the cup")


def test_without_the_library_the_remedy_is_named(tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    language = Language(stored(), tokenizer)
    with pytest.raises(PromptError, match=r"pip install 'auras_ros\[language\]'"):
        language.ids("pull the cup")
    assert "needs the tokenizers library: pip install" in language.prepare()
    assert language.ids(tiny.TEXT) == tuple(tiny.IDS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model": {"type": "Unknown"}}'])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    language = Language(stored(), path)
    assert "tokenizer.json: not a tokenizer" in language.prepare()
    with pytest.raises(PromptError, match=r"tokenizer.json: not a tokenizer"):
        language.ids("pull the cup")


def test_a_tokenizer_of_another_checkpoint_is_found_when_it_is_loaded(tmp_path: Path) -> None:
    """Its ids of the stored prompt are others."""
    folder = tmp_path / "rt2"
    tiny.written(folder, "rt2", tokenizer=True)
    loaded = load(folder)
    assert loaded.language is not None
    assert loaded.language.ids("pull the cup")[8] == 23
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["model"]["vocab"]["push"] = 99
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match=r"tokenizer.json: gives \[1, .* 99, .* whose ids are \(1, "):
        load(folder)


def test_a_policy_without_language_has_none(tmp_path: Path) -> None:
    assert language_of({"layers": 3}, tmp_path) is None
    assert language_of(None, tmp_path) is None


def test_what_is_written_is_read_again() -> None:
    for prompt in (stored(), stored(prompt_limit=30, prompt_lower=True), PromptTemplate((5, 0), "x", end=0)):
        assert PromptTemplate.of(json.loads(json.dumps(prompt.to_network()))) == prompt
    assert stored().to_network() == tiny.prompt()
