"""Before anything is timed: all sides answer the same requests with the same tokens.

With temperature 0, in float32: first one request at a time, then the same requests together, as a batch must not change
an answer either. Equal texts are equal tokens here, because every token of our models has a text of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from auras_ros.bench.peers_vlm.client import closed_loop
from auras_ros.bench.peers_vlm.server import ServerGroup
from auras_ros.bench.peers_vlm.stream import StreamedAnswer

SHOWN = 60  # characters around the first difference


class UnequalTokensError(RuntimeError):
    """A side that answers something else; the text says where."""


def answers(server: ServerGroup, bodies: Sequence[bytes], at_once: int, limit_s: float) -> list[StreamedAnswer]:
    """One at a time, then together; both in the order of the requests. Raises AnswerError or OSError."""
    with server.running():
        alone = [closed_loop(server.ports, [body], 1, limit_s).answers[0] for body in bodies]
        return alone + list(closed_loop(server.ports, bodies, at_once, limit_s).answers)


def check_equal(found: Mapping[str, Sequence[StreamedAnswer]], reference: str, side: str) -> None:
    """found: each side's answers. Raises UnequalTokensError."""
    for number, (wanted, given) in enumerate(zip(found[reference], found[side], strict=True)):
        what = f"request {number + 1} of {len(found[side])}"
        if given.prompt_tokens != wanted.prompt_tokens:
            raise UnequalTokensError(
                f"{what}: the prompt has {given.prompt_tokens} tokens, for {reference} {wanted.prompt_tokens}"
            )
        if given.tokens != wanted.tokens:
            raise UnequalTokensError(f"{what}: {given.tokens} tokens, of {reference} {wanted.tokens}")
        if given.text != wanted.text:
            at = parting(given.text, wanted.text)
            mine, theirs = (text[max(0, at - 10) : at + SHOWN] for text in (given.text, wanted.text))
            raise UnequalTokensError(f"{what}: other tokens than {reference}, at letter {at}: {mine!r}, not {theirs!r}")


def parting(one: str, other: str) -> int:
    """The first letter in which two texts differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))
