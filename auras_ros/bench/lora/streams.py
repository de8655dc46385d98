"""`auras bench lora-streams`: how many video streams stay real-time (VaLoRA figure 14, second row, and figure 16), and
rounds of questions on one image (figure 24).

Every stream sends a chunk of 30 frames each second. A request has some of its frames, in their order, and asks what
happens (appendix B's video understanding); each stream has its own task's adapter. Streams are real-time while 95 % of
the chunks are answered within a second after they came, in a window of a few seconds; the largest such number is
searched for by doubling and halving, in interleaved rounds. Sides: our policy with task heads; the same with an answer
of a few tokens; and, with tokens, S-LoRA's, Punica's and dLoRA's policies and operators, which have no heads. Pixels
are random and prepared before. Then all sides get the same streams: as many as the weakest side has stayed real-time
with.

Rounds of questions: each session asks several, on one image or on the frames of a chunk, each prompt beginning with
all of the session before; requests a second with and without prefix caching. They are appendix B's other tasks, in our
words.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from auras_ros import resources
from auras_ros.bench.figures.paper import PaperFigure, beside_ours
from auras_ros.bench.lora.adapter_folders import write_adapters
from auras_ros.bench.lora.heads import write_head
from auras_ros.bench.lora.load import OWN, SYSTEMS, LoraSide
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, OverError, run_parts
from auras_ros.report.result import Report, Say, key
from auras_ros.report.statistics import spread
from auras_ros.report.table import Column, in_columns

CHUNK_FRAMES, CHUNK_S, IN_TIME = 30, 1.0, 0.95
HEADS = "heads"
SIDES: Mapping[str, LoraSide] = {
    HEADS: SYSTEMS[OWN],
    "tokens": SYSTEMS[OWN],
    **{name: SYSTEMS[name] for name in ("s-lora", "punica", "dlora")},
}
ASKED = "Please analyze these frames of a video in their order and say which action they show."
TASKS = {  # of an image: visual retrieval, and video analytics' detection
    "referring expression": "Mark in the picture where the block is.",
    "question answering": "How many red things are in the picture?",
    "captioning": "Describe the picture in one sentence:",
    "detection": "Put a box around each red thing in the picture.",
}
ON_AN_IMAGE = tuple(TASKS.values())
ON_FRAMES = (ASKED, *ON_AN_IMAGE[:-1])
PAPER = (
    PaperFigure("streams in real time, with heads (an A100)", "3-4", "", "6.3.1"),
    PaperFigure("a chunk's latency below dLoRA, Punica, S-LoRA", "89, 83, 71", "%", "6.2"),
    PaperFigure("latency saved by heads", "41-63", "%", "6.3.1", "heads_saved"),
    PaperFigure(
        "throughput without prefix caching over that with it", 0.96, "", "6.4, figure 24", "uncached_over_cached"
    ),
)
COLUMNS: tuple[Column, ...] = (
    ("side", "{side}"),
    ("streams in real time", "{streams:g}"),
    ("quartiles", "{streams_low:g} to {streams_high:g}"),
    ("ms a chunk, same streams", "{chunk_ms:.1f}"),
    ("99 %", "{chunk_p99_ms:.1f}"),
    ("below it", "{below:.1%}"),
    ("cores", "{cores}"),
    ("rounds", "{n}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("lora-streams", __doc__)
    parser.add_argument("folder", nargs="?", default="pusht-vlm", help="of a vision-language model (pusht-vlm)")
    parser.add_argument("--frames", type=int, default=6, help=f"of the {CHUNK_FRAMES} of a chunk, in its prompt (6)")
    parser.add_argument("--image-px", type=int, default=96, help="side of a frame (96)")
    parser.add_argument("--tokens", type=int, default=5, help="of an answer that is decoded (5)")
    parser.add_argument("--adapters", type=int, default=4, help="tasks; the streams have them in turn (4)")
    parser.add_argument("--rank", type=int, default=16, help="(16)")
    parser.add_argument("--most", type=int, default=64, help="streams that are tried, at most (64)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of a window (4)")
    parser.add_argument("--sessions", type=int, default=12, help="of rounds of questions, in a round (12)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved (3)")
    parser.add_argument("--cores", type=int, default=available(), help="(all)")
    add_minutes(parser, 20.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(
        parser, options,
        frames=1, image_px=16, tokens=1, adapters=1, rank=1, most=1, sessions=1, rounds=1, cores=1, seed=0,
    )  # fmt: skip
    if options.frames > CHUNK_FRAMES:
        parser.error(f"--frames: {options.frames} of the {CHUNK_FRAMES} of a chunk")
    if not options.seconds >= 1:
        parser.error(f"--seconds: from 1 on, got {options.seconds:g}")
    if options.cores > available():
        parser.error(f"--cores: {options.cores} of the {available()} of this process")
    with refusing(parser, FileNotFoundError, CheckpointError, what="folder: "):
        options.folder = resources.checkpoint(options.folder)
    report = Report("lora-streams")
    parts = {
        name: partial(part, report, options, progress) for name, part in (("streams", _streams), ("rounds", _rounds))
    }
    with on_cores(options.cores):
        run_parts(report, options.minutes, parts)
    report.summary |= summarised(report.rows)
    return report


class StreamWindows:
    """A side's engine in a thread of its own, and chunks for it."""

    def __init__(self, side: str, options: argparse.Namespace, adapters: Mapping[str, Path], into: Path) -> None:
        """into: a folder for a table of ways."""
        own = SIDES[side]
        ways = own.ways(into, torch.get_num_threads())
        settings = EngineOptions(
            max_loras=len(adapters), max_lora_rank=options.rank, lora_policy=own.policy, lora_ways=ways,
            lora_exact=not own.in_place, max_merged_loras=len(adapters) if own.several else 1, prefix_cache=False,
            waiting=4096, image_cache_mib=0,
        )  # fmt: skip
        self._engine, self._options, self._head = (
            make_engine(open_vlm(options.folder), settings),
            options,
            side == HEADS,
        )
        self._adapters = list(adapters)
        for name, path in adapters.items():
            self._engine.add_adapter(name, path)
        self._engine.start()

    def close(self) -> None:
        self._engine.close()

    def window(self, streams: int, seed: int, ends: Ends) -> list[float]:
        """From when each chunk was due to its answer, seconds: of all in the window. Streams are spread evenly over the
        second."""
        options = self._options
        count = round(options.seconds * streams)
        requests = [self._request(number % streams, seed + number) for number in range(count)]
        replies, began_s = list[tuple[float, Reply]](), time.monotonic()
        for number, request in enumerate(requests):
            due_s = began_s + number * CHUNK_S / streams
            time.sleep(max(0.0, due_s - time.monotonic()))
            replies.append((due_s, self._engine.submit(request)))
            if time.monotonic() > ends.hard_s:
                raise OverError
        return [_took_s(due_s, reply) for due_s, reply in replies]

    def _request(self, stream: int, seed: int) -> VlmRequest:
        options, adapter = self._options, self._adapters[stream % len(self._adapters)]
        prompt = _prompt(self._engine, [("user", options.frames, ASKED)], options.image_px, seed)
        return VlmRequest(prompt, max_tokens=options.tokens, ignore_eos=True, adapter=adapter, head=self._head)


def _took_s(due_s: float, reply: Reply) -> float:
    """From when it was due: an engine that keeps the submitter from its turn gains nothing by it."""
    answer = reply.result(60.0)
    if answer.finish not in ("stop", "length"):
        raise RuntimeError(f"an answer ended with {answer.finish}: {answer.detail}")
    return answer.usage.timings.ended_ns / 1e9 - due_s


def _prompt(engine: Engine, turns: Sequence[tuple[str, int, str]], side: int, seed: int) -> VlmPrompt:
    """turns: who speaks, how many images there are before the text, and the text."""
    chance, pixels, messages = np.random.default_rng(seed), list[Any](), list[dict[str, Any]]()
    for role, images, text in turns:
        pixels += [chance.integers(0, 256, (side, side, 3), np.uint8) for _ in range(images)]
        messages.append({"role": role, "content": [*([{"type": "image"}] * images), {"type": "text", "text": text}]})
    return engine.checkpoint.prompts.chat(messages, pixels)


def in_time(took_s: Sequence[float]) -> bool:
    return float(np.mean([each <= CHUNK_S for each in took_s])) >= IN_TIME


def most_streams(fits: Callable[[int], bool], most: int) -> int:
    """The largest number that fits, up to `most`, if whatever is below one that fits does too; 0 if not even one."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _streams(report: Report, options: argparse.Namespace, say: Say, ends: Ends) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        into = Path(folder)
        adapters = write_adapters(options.folder, into, options.adapters, options.rank, options.seed)
        width = open_vlm(options.folder).targets.width
        for path in adapters.values():
            write_head(path, width)
        sides = {side: stack.enter_context(closing(StreamWindows(side, options, adapters, into))) for side in SIDES}
        found: dict[str, list[int]] = {side: [] for side in sides}
        for number, side in _turns(options, list(sides), ends):
            say(f"streams: round {number + 1} of {options.rounds}, {side}")
            windows = sides[side]
            windows.window(1, 0, ends)
            fits = lambda streams, windows=windows: in_time(windows.window(streams, number, ends))  # noqa: E731, B023
            found[side].append(most_streams(fits, options.most))
        same = max(1, min(int(median(each)) for each in found.values() if each))
        took: dict[str, list[list[float]]] = {side: [] for side in sides}
        for number, side in _turns(options, list(sides), ends):
            say(f"the same {same} streams: round {number + 1} of {options.rounds}, {side}")
            took[side].append(sides[side].window(same, number, ends))
    report.rows += stream_rows(found, took, options, same)


def _turns(options: argparse.Namespace, sides: Sequence[str], ends: Ends) -> Iterator[tuple[int, str]]:
    chance = random.Random(options.seed)
    for number in range(options.rounds):
        if number and time.monotonic() > ends.soft_s:
            return
        yield from ((number, side) for side in chance.sample(sides, len(sides)))


def stream_rows(
    found: Mapping[str, Sequence[int]],
    took: Mapping[str, Sequence[Sequence[float]]],
    options: argparse.Namespace,
    same: int,
) -> list[dict[str, Any]]:
    """took: of each chunk of each round, seconds. below: how far a chunk's mean latency with heads is below the side's,
    at the same streams: the median of the rounds."""
    means = {side: [1e3 * float(np.mean(each)) for each in rounds] for side, rounds in took.items()}
    rows = []
    for side, counts in found.items():
        low, middle, high = spread([float(each) for each in counts])
        rows.append({
            "what": "streams", "side": side, "streams": middle, "streams_low": low, "streams_high": high,
            "same_streams": same, "chunk_ms": median(means[side]),
            "chunk_p99_ms": 1e3 * float(np.percentile(list(chain.from_iterable(took[side])), 99)),
            "below": 1 - median(one / other for one, other in zip(means[HEADS], means[side], strict=True)),
            "frames": options.frames, "image_px": options.image_px,
            "tokens": options.tokens, "adapters": options.adapters, "rank": options.rank, "cores": options.cores,
            "n": len(counts),
        })  # fmt: skip
    return rows


def _rounds(report: Report, options: argparse.Namespace, say: Say, ends: Ends) -> None:
    """Sessions of questions on an image or on frames; as many at once as run."""
    rates: dict[tuple[bool, int], list[float]] = {}
    with ExitStack() as stack:
        engines = {
            cached: stack.enter_context(
                closing(make_engine(open_vlm(options.folder), EngineOptions(prefix_cache=cached, waiting=4096)))
            )
            for cached in (True, False)
        }
        for each in engines.values():
            each.start()
        for number in range(options.rounds + 1):
            for cached in (True, False) if number % 2 else (False, True):
                say(f"rounds of questions: round {number} of {options.rounds}")
                for images in sorted({1, options.frames}):
                    rate = _sessions(engines[cached], options, images, 1000 * number, ends)
                    if number:
                        rates.setdefault((cached, images), []).append(rate)
    for (cached, images), values in rates.items():
        low, middle, high = spread(values)
        report.rows.append({
            "what": "questions", "side": f"prefix caching {'on' if cached else 'off'}", "images": images,
            "requests_hz": middle, "requests_hz_low": low, "requests_hz_high": high, "questions": len(ON_AN_IMAGE),
            "cores": options.cores, "n": len(values),
            "over_cached": median(one / other for one, other in zip(values, rates[True, images], strict=True)),
        })  # fmt: skip


def _sessions(engine: Engine, options: argparse.Namespace, images: int, seed: int, ends: Ends) -> float:
    """Requests a second: each session asks its next question when it has the answer."""
    questions = ON_AN_IMAGE if images == 1 else ON_FRAMES
    turns: dict[int, list[tuple[str, int, str]]] = {}
    open_: dict[int, Reply] = {}
    waiting, done, began_s = list(range(options.sessions)), 0, time.monotonic()
    while waiting or open_:
        if time.monotonic() > ends.hard_s:
            raise OverError
        while waiting and len(open_) < engine.options.running:
            session = waiting.pop(0)
            own = turns.setdefault(session, [])
            own.append(("user", 0 if own else images, questions[len(own) // 2]))
            prompt = _prompt(engine, own, options.image_px, seed + session)
            open_[session] = engine.submit(VlmRequest(prompt, max_tokens=options.tokens, ignore_eos=True))
        for session, reply in list(open_.items()):
            if not reply.ended:
                continue
            done += 1
            del open_[session]
            turns[session].append(("assistant", 0, reply.result(0).text))
            if len(turns[session]) < 2 * len(questions):
                waiting.insert(0, session)
        time.sleep(1e-4)
    return done / (time.monotonic() - began_s)


def summarised(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """streams_*: in real time. heads_saved: a chunk's latency with heads below that with tokens, at the same streams;
    below_*: below the other sides'. uncached_over_cached: requests a second, of sessions on one image; _frames: on
    several."""
    found = dict[str, float]()
    for row in rows:
        if row["what"] == "streams":
            found[f"streams_{key(row['side'])}"] = row["streams"]
            if row["side"] != HEADS:
                found["heads_saved" if row["side"] == "tokens" else f"below_{key(row['side'])}"] = row["below"]
        elif row["side"].endswith("off"):
            found[f"uncached_over_cached{'' if row['images'] == 1 else '_frames'}"] = row["over_cached"]
    return found


def table(report: Report) -> str:
    streams = [row for row in report.rows if row["what"] == "streams"]
    asked = [
        f"{row['side']}: {row['requests_hz']:.2f} requests/s ({row['requests_hz_low']:.2f} to"
        f" {row['requests_hz_high']:.2f}), {row['questions']} questions on"
        f" {'an image' if row['images'] == 1 else str(row['images']) + ' frames'}, {row['cores']} cores"
        for row in report.rows if row["what"] == "questions"
    ]  # fmt: skip
    ours = beside_ours([each.row(report.summary) for each in PAPER], "VaLoRA")
    numbers = [f"{name:24} {value:8.3f}" for name, value in report.summary.items()]
    return "\n\n".join("\n".join(part) for part in (in_columns(streams, COLUMNS, left=(0,)), asked, ours, numbers))
