"""The paper's RTX A6000 with CogAgent as a profile: every parameter with where it comes from.

Frozen before any scheduler runs on it. What the paper gives only as a picture is not read off: the shape of the curves
is assumed, and its parameters are what reproduces everything that the text says (tests/bench/nova/test_a6000.py).
`Parameters.varied` gives the ±20 % of the sensitivity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from auras_ros.engine.profile import CorunTimes, StageProfile

UNITS, STEP = 84, 2  # SMs of an RTX A6000, and the step of libsmctrl (V-A1, V-A5)
TBT_BOUND_MS = 80.0  # "maximum TBT remains below 80 ms" (V-A5)
S_MIN, BY_VISION, BY_PREFILL, BETA_VISION, BETA_PREFILL = 12, 24, 30, 4.0, 6.0  # V-A5
RATES_HZ = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)  # table V
PROCESSING_S = (1.39, 1.44, 1.43, 1.42, 1.38, 1.35)  # table V: vision and prefill of a request, in the mean
DELAY_S = (0.60, 1.14, 2.06, 3.82, 8.49, 33.57)  # table V, measured
THEORY_S = (0.51, 1.00, 1.86, 4.32, 20.99, None)  # table V, by equation 6
CHUNKS = (64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 768, 1024, 1400)
SLOWDOWNS = ("floor_vision", "floor_prefill", "shared_vision", "shared_decode")
TOKENS = (30, 40, 80)  # of an answer: "from 30 to 80" (V-A3), the mean "between 40-60" (III-C2); least, likeliest, most


@dataclass(frozen=True)
class Parameters:
    """Milliseconds, and factors without a unit.

    From the text:
    vision, prefill, decode: table I.
    decode_row: 28.9 ms at a batch of 1, 30.6 ms at 10 (III-C2). The same is taken for a row that decodes within a
    chunk, of which nothing is said.
    prompt: 70 MB of keys and values a request (V-A2), of a language model with 40 layers and 2 key-value heads of 128
    in bfloat16 (GLM-4-9B, whose form CogAgent's has): 40,960 bytes a token.
    shared_vision, shared_decode: table IV: the vision kernels take 680.6 ms instead of 588.3 beside the decode kernels,
    of which 561 of 699.8 ms are then still to do: so 4.9 times as long meanwhile.

    Assumed shapes, and what fixes them:
    Vision and prefill are bound by arithmetic: their time is inverse to their SMs, times 1 + `contention` x decode's
    share of its full bandwidth. It is fitted to the six means of table V, and prefill's is the larger one (V-B). The
    window in which two linear kernels gain (III-B2: 36 SMs of decode do, 38 do not) would ask for 0.27 to 0.32; with
    the fitted one they gain up to 44.
    Decode is bound by memory: at most SMs it waits for memory (floor), at few SMs its time is inverse to them (knee):
    28.9 ms x (floor^6 + (knee/SMs)^6)^(1/6). Of the four numbers: 18 SMs gain and 16 do not (III-B2), S_min = 12 with
    80 ms, and S_0 = 24 and 30 by equation 3 for answers of 45 to 50 tokens (V-A5). With them throughput gains more
    beside vision up to 24 SMs of decode, but above that beside prefill, where V-B says vision.
    A prefill in chunks is slower: Agrawal et al. 2023 (SARATHI) lose 20 % of its throughput in chunks of 256 tokens and
    10 % in chunks of 512, on an A6000 with LLaMA-13B: the share is `chunk_loss` tokens over the chunk's. Where that
    would make a shorter chunk slower than a longer one (below twice `chunk_loss`), it takes as long as one of that
    many; and no forward is quicker than a decode, as it reads the same weights.
    """

    vision: float = 806.8
    prefill: float = 324.1
    decode: float = 28.9
    decode_row: float = (30.6 - 28.9) / 9
    prompt: int = 1700
    contention_vision: float = 0.01
    contention_prefill: float = 0.02
    floor_vision: float = 1.3
    knee_vision: float = 29.0
    floor_prefill: float = 1.1
    knee_prefill: float = 33.0
    chunk_loss: float = 51.2
    shared_vision: float = 680.6 / 588.3
    shared_decode: float = 680.6 / (699.8 - (1241.8 - 680.6))

    def varied(self, share: float) -> Iterator[tuple[str, float, Parameters]]:
        """Each parameter alone, less and more by this share of it: its name, the factor, and all parameters then. A
        slowdown stays one: no neighbour makes a forward quicker."""
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            least = 1.0 if name in SLOWDOWNS else 0.0
            for factor in (1 - share, 1 + share):
                yield name, factor, replace(self, **{name: type(value)(max(value * factor, least))})


def profile(parameters: Parameters = Parameters()) -> StageProfile:
    p = parameters
    corun = {}
    for size in range(STEP * 2, UNITS - STEP * 10, STEP):
        by_vision, by_prefill = (
            _decode(p.floor_vision, p.knee_vision, size),
            _decode(p.floor_prefill, p.knee_prefill, size),
        )
        rest = UNITS / (UNITS - size)
        corun[size] = CorunTimes(
            p.vision * rest * (1 + p.contention_vision / by_vision),
            p.prefill * rest * (1 + p.contention_prefill / by_prefill),
            p.decode * by_vision,
            p.decode * by_prefill,
        )
    chunks = {tokens: _chunk(p, tokens) for tokens in CHUNKS}
    shared = CorunTimes(
        p.vision * p.shared_vision, p.prefill * p.shared_vision, p.decode * p.shared_decode, p.decode * p.shared_decode
    )
    return StageProfile(
        "RTX A6000 (paper)", "CogAgent", UNITS, p.vision, {**chunks, p.prompt: p.prefill},
        p.prompt, p.decode, p.decode_row, p.decode_row, corun, shared,
    )  # fmt: skip


def _decode(floor: float, knee: float, size: int) -> float:
    return float((floor**6 + (knee / size) ** 6) ** (1 / 6))


def _chunk(p: Parameters, tokens: int) -> float:
    filled = max(tokens, 2 * p.chunk_loss)  # where the shape has its least: fewer tokens take as long
    return max(p.prefill * filled / p.prompt / (1 - p.chunk_loss / filled), p.decode)
