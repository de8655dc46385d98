"""Signed words of the emergency stop: who can make one, how old it is, and what a key file must be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from auras_ros.nodes.common.stop_signature import (
    BadWordError,
    Challenges,
    KeyFileError,
    SignedWord,
    challenge_text,
    read_challenge,
    read_key,
    signed_text,
    write_new_key,
)

KEY = bytes(range(32))
TOPIC = "/emergency_stop"


@pytest.fixture
def challenges() -> Challenges:
    return Challenges(KEY, max_age_s=0.5)


@pytest.mark.parametrize("pressed", [True, False])
def test_a_word_is_as_old_as_its_challenge(challenges: Challenges, pressed: bool) -> None:
    challenge = read_challenge(challenge_text(challenges.new(10.0)))
    text = signed_text(KEY, TOPIC, "/button", pressed, challenge)
    assert challenges.read(text, TOPIC, 10.4) == SignedWord("/button", pressed, 10.0)


def test_a_recorded_word_is_refused_once_its_challenge_is_too_old(challenges: Challenges) -> None:
    text = signed_text(KEY, TOPIC, "/button", False, challenges.new(10.0))
    with pytest.raises(BadWordError, match="too old"):
        challenges.read(text, TOPIC, 10.6)
    challenges.new(11.0)
    with pytest.raises(BadWordError, match="too old"):
        challenges.read(text, TOPIC, 10.1)


def test_every_field_is_signed(challenges: Challenges) -> None:
    """No word can be made from another one: not the opposite, not another button's, not on another topic."""
    challenge, later = challenges.new(10.0), challenges.new(10.1)
    word = json.loads(signed_text(KEY, TOPIC, "/button", False, challenge))
    for changed in ({"pressed": True}, {"button": "/other"}, {"challenge": later}, {"hmac": "0" * 64}):
        with pytest.raises(BadWordError, match="hmac"):
            challenges.read(json.dumps(word | changed), TOPIC, 10.2)
    with pytest.raises(BadWordError, match="hmac"):
        challenges.read(json.dumps(word), "/pendant/stop", 10.2)


def test_a_word_of_another_key_is_refused(challenges: Challenges) -> None:
    text = signed_text(KEY[::-1], TOPIC, "/button", False, challenges.new(10.0))
    with pytest.raises(BadWordError, match="made with another key"):
        challenges.read(text, TOPIC, 10.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "1" * 5000, "[" * 1000, "x" * 2000,
        '{"button": 1}', '{"button": ""}', '{"button": "\\ud800", "pressed": true}', '{"button": "b", "pressed": 1}',
        '{"button": "b", "pressed": true, "challenge": ["a"]}', '{"button": "b", "pressed": true, "challenge": null}',
    ],
)  # fmt: skip
def test_what_is_no_word_is_refused(challenges: Challenges, text: str) -> None:
    challenges.new(10.0)
    with pytest.raises(BadWordError):
        challenges.read(text, TOPIC, 10.0)


@pytest.mark.parametrize("signature", [None, 1, "", "0" * 63, "Z" * 64, "é" * 64, ["0"] * 64])
def test_a_signature_of_another_form_is_refused(challenges: Challenges, signature: object) -> None:
    word = {"button": "b", "pressed": False, "challenge": challenges.new(10.0), "hmac": signature}
    with pytest.raises(BadWordError, match="64 hexadecimal digits"):
        challenges.read(json.dumps(word), TOPIC, 10.0)


@pytest.mark.parametrize("text", ["{}", '{"challenge": 1}', '{"challenge": "zz"}', '{"challenge": "' + "0" * 33 + '"}'])
def test_what_is_no_challenge_is_refused(text: str) -> None:
    with pytest.raises(BadWordError):
        read_challenge(text)


def test_a_new_key_can_be_read_by_its_owner_alone_and_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "stop.key"
    write_new_key(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_key(str(path))) == 32
    with pytest.raises(FileExistsError):
        write_new_key(str(path))


def test_a_file_that_is_no_key_is_refused_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "stop.key"
    with pytest.raises(KeyFileError, match=r"No such file .*--new-key"):
        read_key(str(path))
    for content, said in ((b"", "0 bytes, must be 32"), (bytes(31), "31 bytes"), (bytes(33), "more than 32 bytes")):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(KeyFileError, match=said):
            read_key(str(path))
    path.write_bytes(KEY)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(KeyFileError, match=r"others can read it .*chmod 600"):
            read_key(str(path))
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_key(str(fifo))
    with pytest.raises(KeyFileError, match="not a regular file"):
        read_key(str(tmp_path))
