"""Text token by token against the tokenizer's own text of the whole answer.

Guards: a character of several bytes that is shown as a mark for what cannot be read, or lost, because its tokens come
one at a time; text that was held back and is said twice, or never; a stop text found in what was said before.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.reply import AnswerText
from auras_ros.engine.request import AnswerToken, RequestUsage, Timings
from tests.checkpoints.vlm.folders import VOCABULARY, tokenizer

tokenizers = pytest.importorskip("tokenizers")

WORDS = ["the tee ", "é", "€", "😀", "ü\n", "日本語", "\ufffd", "\u200d", "a", "👩‍🚀", "\x00"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("tokenizer")
    tokenizer("llava", path)
    return tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))


@pytest.fixture(scope="module")
def by_bytes() -> Any:
    """As Llama 2's: a word begins with a space mark, and what is not in the vocabulary is one token for each byte."""
    from tokenizers import Tokenizer, decoders, models

    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocabulary |= {word: 256 + place for place, word in enumerate(["▁", "▁the", "▁tee", "s", "<unk>"])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return made


def said(made: Any, ids: list[int], stops: tuple[str, ...] = ()) -> tuple[list[str], AnswerText]:
    text, pieces = AnswerText(made, stops), list[str]()
    for token in ids:
        pieces.append(text.push(token))
        if text.stopped:
            return pieces, text
    return [*pieces, text.flush()], text


def whole(made: Any, ids: list[int]) -> str:
    text: str = made.decode(ids, skip_special_tokens=True)
    return text


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_random_tokens_are_the_whole(plain: Any, seed: int) -> None:
    """Most are bytes that make no character, also many in a row and then one that does."""
    chance = random.Random(seed)
    ids = [chance.randrange(VOCABULARY) for _ in range(60)]
    for _ in range(seed % 4):
        at = chance.randrange(len(ids))
        ids[at:at] = plain.encode(chance.choice(WORDS), add_special_tokens=False).ids
    pieces, _ = said(plain, ids)
    assert "".join(pieces) == whole(plain, ids)


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("word", ["é", "€", "😀"])
def test_a_character_after_bytes_that_make_none_is_whole(plain: Any, word: str, count: int) -> None:
    broken = plain.encode("é", add_special_tokens=False).ids[1:]
    for ids in (
        broken * count + plain.encode(word, add_special_tokens=False).ids,
        plain.encode(word, add_special_tokens=False).ids[:1] * count + plain.encode(word, add_special_tokens=False).ids,
    ):
        pieces, _ = said(plain, ids)
        assert "".join(pieces) == whole(plain, ids)


@pytest.mark.parametrize("name", ["plain", "by_bytes"])
def test_characters_of_several_bytes_come_whole(request: pytest.FixtureRequest, name: str) -> None:
    made, chance = request.getfixturevalue(name), random.Random(1)
    for _ in range(20):
        words = [word for word in WORDS if word != "\ufffd"]
        text = "the tees " + "".join(chance.choice(words) for _ in range(8))
        ids = made.encode(text.replace(" ", "▁") if name == "by_bytes" else text, add_special_tokens=False).ids
        pieces, _ = said(made, ids)
        assert "".join(pieces) == whole(made, ids)
        assert not any("\ufffd" in piece for piece in pieces)


def test_text_comes_as_soon_as_it_is_certain(plain: Any) -> None:
    ids = plain.encode("the tee é is", add_special_tokens=False).ids
    pieces, _ = said(plain, ids)
    for count, piece in enumerate(pieces[:-1], 1):
        assert bool(piece) != whole(plain, ids[:count]).endswith("\ufffd")


def test_bytes_that_make_no_character_are_not_held_for_long(plain: Any) -> None:
    """At most three of them: a character has four."""
    broken = plain.encode("é", add_special_tokens=False).ids[1:]
    text, shown = AnswerText(plain, ()), 0
    for count in range(1, 40):
        shown += len(text.push(broken[0]))
        assert count - 8 <= shown <= count


@pytest.mark.parametrize("seed", range(40))
def test_a_stop_text_cuts_where_the_whole_text_has_it(plain: Any, seed: int) -> None:
    """Whether it is within a piece, begins in an earlier one, or only seems to begin."""
    chance = random.Random(seed)
    text = "".join(chance.choice("aab€é😀 ") for _ in range(40))
    ids = plain.encode(text, add_special_tokens=False).ids
    stops = tuple("".join(chance.choice("ab€é") for _ in range(chance.randrange(1, 4))) for _ in range(2))
    pieces, made = said(plain, ids, stops)
    found = [text.index(stop) for stop in stops if stop in text]
    if not found:
        assert "".join(pieces) == text
        return
    assert made.stopped
    first = min(range(1, len(ids) + 1), key=lambda n: (not any(stop in whole(plain, ids[:n]) for stop in stops), n))
    heard = whole(plain, ids[:first])
    assert "".join(pieces) == heard[: min(heard.index(stop) for stop in stops if stop in heard)]
    assert len(pieces) == first


def test_what_is_shown_is_never_part_of_a_stop_text(plain: Any) -> None:
    text, shown = AnswerText(plain, ("tee is", "the block")), ""
    ids = plain.encode("the blue the tee the tee is on", add_special_tokens=False).ids
    for token in ids:
        shown += text.push(token)
        assert "the blue the tee the ".startswith(shown)
        if text.stopped:
            break
    assert shown == "the blue the tee the "


def test_an_answer_is_there_when_its_last_piece_is(plain: Any) -> None:
    from auras_ros.engine.reply import Reply

    heard = []
    reply = Reply(lambda piece: heard.append((piece, reply.ended)), AnswerText(plain, ()), lambda: None)
    reply.push(AnswerToken(plain.encode("é", add_special_tokens=False).ids[0]), True)
    reply.end("length", "", RequestUsage(1, 0, 0, Timings()))
    assert [(piece.text, piece.finish, over) for piece, over in heard] == [
        ("", None, False),
        ("\ufffd", "length", True),
    ]
    assert reply.result(0).text == "\ufffd"
