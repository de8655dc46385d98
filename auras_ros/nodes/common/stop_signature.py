"""Signed words of an emergency stop: what a button and an actuator that share a key say to each other.

The actuator publishes a random challenge on `~/stop_challenge` every CHALLENGE_PERIOD_S. The button answers each one on
`TOPIC/signed` with an HMAC-SHA256 over the topic, its own name, its state and the challenge. Nobody without the key can
make an answer, and an answer is as old as its challenge, so that recorded ones are worth nothing a moment later.

Messages are std_msgs/String with JSON. Nothing here knows ROS.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

KEY_BYTES = 32
CHALLENGE_BYTES = 16
CHALLENGE_PERIOD_S = 0.1
MAX_CHARS = 1024  # of a signed word, and of a challenge
MAX_NAME_CHARS = 256
SIGNED = "signed"  # the last part of the topic's name
CHALLENGE_TOPIC = "stop_challenge"
PURPOSE = "auras_ros emergency stop 1"  # the same key signs nothing else


class KeyFileError(ValueError):
    """A key file that cannot be used; the message says what to do."""


class BadWordError(ValueError):
    """A message on `TOPIC/signed` that no button with this key has made for a recent challenge."""


@dataclass(frozen=True)
class SignedWord:
    """What a button said, after its signature was checked."""

    button: str
    pressed: bool
    # When its challenge was sent, monotonic s.
    challenged_s: float


def read_key(path: str) -> bytes:
    """The key in a file of KEY_BYTES bytes that only its owner can read. Raises KeyFileError."""
    file = Path(path).expanduser()
    remedy = f"make one with: auras button --new-key {path}"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not make it wait
    except OSError as error:
        raise KeyFileError(f"emergency_stop_key_file: {file}: {error.strerror}; {remedy}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"emergency_stop_key_file: {file}: not a regular file; {remedy}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise KeyFileError(
                f"emergency_stop_key_file: {file}: others can read it (mode {mode:04o}): chmod 600 {path}"
            )
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != KEY_BYTES:
        size = f"more than {KEY_BYTES}" if len(key) > KEY_BYTES else len(key)
        raise KeyFileError(f"emergency_stop_key_file: {file}: {size} bytes, must be {KEY_BYTES}; {remedy}")
    return key


def write_new_key(path: str) -> None:
    """Write a random key to a new file with mode 0600. Raises FileExistsError, OSError."""
    descriptor = os.open(Path(path).expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(secrets.token_bytes(KEY_BYTES))


def challenge_text(challenge: str) -> str:
    """The JSON text of a challenge."""
    return json.dumps({"challenge": challenge})


def read_challenge(text: str) -> str:
    """The challenge in a JSON text. Raises BadWordError."""
    challenge = _fields(text).get("challenge")
    if not _is_hex(challenge, CHALLENGE_BYTES):
        raise BadWordError("challenge: expected 32 hexadecimal digits")
    return str(challenge)


def signed_text(key: bytes, topic: str, button: str, pressed: bool, challenge: str) -> str:
    """A button's answer to a challenge, as JSON. topic: fully qualified name of the button's plain topic."""
    word = {"button": button, "pressed": pressed, "challenge": challenge}
    return json.dumps({**word, "hmac": _signature(key, topic, button, pressed, challenge)})


def _signature(key: bytes, topic: str, button: str, pressed: bool, challenge: str) -> str:
    """Lengths are part of what is signed, so that no two words have the same bytes."""
    parts = (PURPOSE, topic, button, "pressed" if pressed else "released", challenge)
    content = b"".join(b"%d:%s," % (len(part.encode()), part.encode()) for part in parts)
    return hmac.new(key, content, hashlib.sha256).hexdigest()


class Challenges:
    """The actuator's side: makes challenges and checks answers. Used by one thread.

    max_age_s: an answer to an older challenge is refused.
    """

    def __init__(self, key: bytes, max_age_s: float) -> None:
        self._key = key
        self._max_age_s = max_age_s
        self._sent_s: OrderedDict[str, float] = OrderedDict()  # challenge -> when it was sent

    def new(self, now_s: float) -> str:
        """A new challenge; those that are too old are forgotten."""
        while self._sent_s and now_s - next(iter(self._sent_s.values())) > self._max_age_s:
            self._sent_s.popitem(last=False)
        challenge = secrets.token_hex(CHALLENGE_BYTES)
        self._sent_s[challenge] = now_s
        return challenge

    def read(self, text: str, topic: str, now_s: float) -> SignedWord:
        """A button's answer on the topic. Raises BadWordError."""
        fields = _fields(text)
        button = fields.get("button")
        pressed = fields.get("pressed")
        challenge = fields.get("challenge")
        signature = fields.get("hmac")
        if not isinstance(button, str) or not 0 < len(button) <= MAX_NAME_CHARS or not button.isprintable():
            raise BadWordError("button: expected a name")
        if not isinstance(pressed, bool):
            raise BadWordError("pressed: expected true or false")
        if not isinstance(challenge, str) or challenge not in self._sent_s:
            raise BadWordError("challenge: not one of mine, or too old")
        if not _is_hex(signature, hashlib.sha256().digest_size):
            raise BadWordError("hmac: expected 64 hexadecimal digits")
        if not hmac.compare_digest(str(signature), _signature(self._key, topic, button, pressed, challenge)):
            raise BadWordError("hmac: made with another key, or for another topic")
        challenged_s = self._sent_s[challenge]
        if now_s - challenged_s > self._max_age_s:
            raise BadWordError("challenge: not one of mine, or too old")
        return SignedWord(button, pressed, challenged_s)


def _fields(text: str) -> dict[str, object]:
    if len(text) > MAX_CHARS:
        raise BadWordError(f"{len(text)} characters, at most {MAX_CHARS}")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadWordError("no JSON") from error
    if not isinstance(fields, dict):
        raise BadWordError("expected a JSON object")
    return fields


def _is_hex(value: object, size: int) -> bool:
    """Whether it is a text of 2 * size lower-case hexadecimal digits."""
    return isinstance(value, str) and len(value) == 2 * size and not set(value) - set("0123456789abcdef")
