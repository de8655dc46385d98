"""transformers' `generate` compared with seq and auras, on OpenVLA's shape with the same random weights.

Both use the same encoders and decode seven tokens greedily with a KV cache. transformers is used unmodified: `generate`
itself, its dynamic cache, its attention (sdpa). It runs in this process and shares our tensors. Before anything is
timed, the prefix must be equal up to rounding and the tokens must be equal; a token may differ only if rounding decides
it. On a GPU both sides compute in full float32.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

import torch
from torch import Tensor

from auras_ros import __version__
from auras_ros.bench.peers.contest import CHECKED, RateSource, UnequalError, compare, our_sources
from auras_ros.bench.peers.published import PublishedOpenVla
from auras_ros.bench.policies import Built, build, where_built
from auras_ros.device.precision import full_float32
from auras_ros.measure.compare import Job
from auras_ros.measure.executors import Bench
from auras_ros.measure.same import CLEAR
from auras_ros.measure.window import Length
from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.llama import Llama
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.vision_language import VisionLanguagePrefix
from auras_ros.report.result import Say

PART = "transformers"
GENERATE = "generate"
SHAPES = {"tiny": "openvla-tiny", "small": "openvla-small", "published": "openvla-7b"}
TOKENS = 7
TOLERANCE = 1e-3  # of the prefix, in units of its standard deviation


@dataclass(frozen=True)
class TransformersPair:
    """Their model and our policy: the same weights, the same observations."""

    theirs: PublishedOpenVla
    bench: Bench
    policy: AutoregressivePolicy
    examples: Sequence[tuple[Tensor, Tensor]]


def measure(job: Job) -> None:
    """Writes rows and ratios to the report; if interrupted, those of whole rounds. Raises UnequalError, and ValueError
    if this version of transformers has different networks."""
    options, name = job.options, SHAPES[job.options.shape]
    job.say(f"{PART}: building {name}")
    built = build(name, tokens=TOKENS, **where_built(options.device))
    with full_float32(), job.bench(built.policy) as bench:
        sources = _sources(_sides(built, bench), job.say)
        pairs = [("seq", GENERATE), ("auras", GENERATE), ("auras", "seq")]
        compare(job, sources, pairs, {"tokens": TOKENS, **built.fields()})


def _sides(built: Built, bench: Bench) -> TransformersPair:
    """The codec maps every id to a different action, so that equal chunks mean equal tokens."""
    policy = built.policy
    assert isinstance(policy, AutoregressivePolicy)
    assert isinstance(policy.prefix, VisionLanguagePrefix)
    assert isinstance(policy.decoder, Llama)
    codec = Rt2Tokens([-1.0] * TOKENS, [1.0] * TOKENS, first=0, bins=policy.decoder.config.vocabulary)
    policy.codec = codec.to(bench.device)
    return TransformersPair(PublishedOpenVla(policy.prefix, TOKENS), bench, policy, bench.feed.examples)


def _sources(sides: TransformersPair, progress: Say) -> list[RateSource]:
    """All three contenders, after their tokens were compared."""
    progress(f"{PART}: checking that all compute the same")
    prefix = check_prefix(sides)
    expected = torch.cat([their_tokens(sides.theirs, images) for images, _ in sides.examples[:CHECKED]])
    theirs = {"torch": torch.__version__, "transformers": metadata.version(PART), "max_difference": 0.0}
    here = {"torch": torch.__version__, "auras_ros": __version__, "max_difference": prefix}
    plans = Plan(), Plan(mode="auras", pp_generation=TOKENS)
    ours = our_sources(
        sides.bench, plans, lambda name, chunks: {**here, "tokens_unlike": check_tokens(name, sides, chunks, expected)}
    )
    return [RateSource(GENERATE, their_rate(sides), theirs), *ours]


def their_tokens(theirs: PublishedOpenVla, images: Tensor) -> Tensor:
    """Images on the host, [1, history, cameras, 6, px, px], to ids on the host, int64 [1, TOKENS]."""
    return theirs.generate(images[:, -1, 0].to(theirs.device)).cpu()


def their_rate(sides: TransformersPair) -> Callable[[Length], float]:
    """Chunks per second of requests one after another, without the first of a window; 0 if there was only that one."""

    def rate(length: Length) -> float:
        gc.collect()
        took: list[float] = []
        while (len(took) <= length.chunks or sum(took[1:]) < length.seconds) and sum(took) < length.limit_s:
            images, _ = sides.examples[len(took) % len(sides.examples)]
            began_s = time.perf_counter()
            their_tokens(sides.theirs, images)
            took.append(time.perf_counter() - began_s)
        return (len(took) - 1) / sum(took[1:]) if len(took) > 1 else 0.0

    return rate


# -- the same? ----------------------------------------------------------------------------------------


def check_prefix(sides: TransformersPair) -> float:
    """The largest difference of the prefix, in units of its standard deviation. Raises UnequalError above TOLERANCE."""
    worst = 0.0
    for example in sides.examples[:CHECKED]:
        images, state = (part.to(sides.bench.device) for part in example)
        got, expected = sides.policy.perceive(images, state), sides.theirs.prefix(images[:, -1, 0])
        if got.shape != expected.shape:
            raise UnequalError(f"{PART}: our prefix is {list(got.shape)}, theirs {list(expected.shape)}")
        worst = max(worst, float((got - expected).abs().max() / expected.std()))
    if not worst <= TOLERANCE:
        raise UnequalError(
            f"{PART}: our prefix differs from transformers' by up to {worst:.3g} of its standard deviation, more than "
            f"{TOLERANCE:g}: nothing is timed"
        )
    return worst


def check_tokens(name: str, sides: TransformersPair, chunks: Tensor, ids: Tensor) -> int:
    """The number of tokens that differ from theirs (ids, int64 [CHECKED, TOKENS]). Tokens may differ only from a token
    on whose margin over the second best is within rounding. Raises UnequalError for other differences."""
    policy = sides.policy
    expected = policy.codec.decode(ids[:, None].to(sides.bench.device)).cpu()
    if chunks.shape != expected.shape:
        raise UnequalError(f"{PART}: {name}: chunks are {list(chunks.shape)}, generate's {list(expected.shape)}")
    unlike = (chunks != expected).flatten(1)
    for row in unlike.any(1).nonzero().flatten().tolist():
        first = int(unlike[row].int().argmax())
        images, state = (part.to(sides.bench.device) for part in sides.examples[row])
        margin = float(policy.margins(policy.perceive(images, state))[0, first])
        if not margin <= CLEAR:
            raise UnequalError(
                f"{PART}: {name}: {int(unlike[row].sum())} of {TOKENS} tokens are not generate's (observation {row}, "
                f"from token {first} on, which wins by {margin:.3g} standard deviations): nothing is timed"
            )
    return int(unlike.sum())
