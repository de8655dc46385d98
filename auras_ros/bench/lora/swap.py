"""`auras bench lora-swap`: many adapters on disk, few in memory (VaLoRA 5 and figure 23).

One engine answers requests of all adapters, of which it has room for a few; wanted ones are drawn by Zipf's law. Every
answer must be the one that an engine gives which has room for one adapter and runs one request at a time; how many of
those answers differ says how well a wrong adapter would be seen. Measured are the reads, how long they take in their
own thread, what a request pays whose adapter was not there, and memory that grows with requests. Beside it, after it
and not in turns, the same requests with all adapters in memory, where each was read before: what is left of the
difference is what reading in the background does not hide.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.bench.lora.adapter_folders import write_adapters
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest
from auras_ros.heap import TENSOR_BLOCK, bound_heap, trim_heap
from auras_ros.lora.pool import PoolStats
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, OverError, run_parts
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Column, in_columns

QUESTIONS = ("Where is the tee?", "Is the tee on its goal?", "What is to be done next?")
STATM, PAGE = Path("/proc/self/statm"), 4096
PAPER = (
    "the paper: an adapter is swapped in 15 ms (A100, 43 MB); figure 23, latency by number of adapters, is a picture"
)
COLUMNS: tuple[Column, ...] = (
    ("in memory", "{slots} of {adapters}"),
    ("requests", "{requests}"),
    ("wrong", "{wrong}"),
    ("different answers", "{distinct} of {answers}"),
    ("reads", "{loads}"),
    ("ms each", "{load_ms:.1f}"),
    ("found there", "{hit_share:.0%}"),
    ("E2E ms", "{e2e_ms:.1f}"),
    ("p99", "{e2e_p99_ms:.0f}"),
    ("requests/s", "{requests_hz:.1f}"),
    ("grew MiB", "{grew_mib:+.1f}"),
    ("cores", "{cores}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("lora-swap", __doc__)
    parser.add_argument("folder", nargs="?", default="pusht-vlm", help="of a vision-language model (pusht-vlm)")
    parser.add_argument("--adapters", type=int, default=200, help="on disk (200)")
    parser.add_argument("--slots", type=int, default=8, help="of them in memory (8)")
    parser.add_argument("--rank", type=int, default=8, help="(8)")
    parser.add_argument("--requests", type=int, default=2000, help="(2000)")
    parser.add_argument("--tokens", type=int, default=8, help="of an answer (8)")
    parser.add_argument("--at-once", type=int, default=16, help="requests that wait or run (16)")
    parser.add_argument("--cores", type=int, default=available(), help="(all)")
    add_minutes(parser, 20.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, adapters=1, slots=1, rank=1, requests=1, tokens=1, at_once=1, cores=1, seed=0)
    if options.cores > available():
        parser.error(f"--cores: {options.cores} of the {available()} of this process")
    with refusing(parser, FileNotFoundError, CheckpointError, what="folder: "):
        options.folder = resources.checkpoint(options.folder)
    report = Report("lora-swap", more={"paper": PAPER})
    bound_heap(TENSOR_BLOCK)
    with on_cores(options.cores):
        run_parts(report, options.minutes, {"lora-swap": lambda ends: _measure(report, options, ends, progress)})
    report.summary |= summarised(report.rows)
    return report


def _measure(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    with tempfile.TemporaryDirectory() as folder:
        say(f"writing {options.adapters} adapters")
        adapters = write_adapters(options.folder, Path(folder), options.adapters, options.rank, options.seed)
        asked = drawn(list(adapters), options.requests, options.seed)
        say("what each answer must be")
        wanted = _wanted(options, adapters, sorted(set(asked)), ends)
        for slots in (options.slots, options.adapters):
            say(f"{slots} adapters in memory")
            with closing(_engine(options, adapters, slots, options.at_once)) as engine:
                _answers(engine, options, [(name, 0) for name in adapters], ends)  # each is read once
                assert engine.adapters is not None
                before, half = replace(engine.adapters.pool.stats), len(asked) // 2
                began_s = time.monotonic()
                found = _answers(engine, options, asked[:half], ends)
                before_mib = resident_mib()
                found += _answers(engine, options, asked[half:], ends)
                spent = {
                    "grew_mib": resident_mib() - before_mib,
                    "requests_hz": len(asked) / (time.monotonic() - began_s),
                }
            report.rows.append(_row(engine, before, options, slots, asked, wanted, found) | spent)


def drawn(names: Sequence[str], requests: int, seed: int) -> list[tuple[str, int]]:
    """Adapter and question of each request; the n-th adapter is asked for 1 / n times as often as the first."""
    chance = random.Random(seed)
    chosen = chance.choices(names, [1 / (place + 1) for place in range(len(names))], k=requests)
    return [(name, chance.randrange(len(QUESTIONS))) for name in chosen]


def _engine(options: argparse.Namespace, adapters: dict[str, Path], slots: int, running: int) -> Engine:
    settings = EngineOptions(
        max_loras=slots, max_lora_rank=options.rank, running=min(running, 8), waiting=4096, kv_mib=512
    )
    engine = make_engine(open_vlm(options.folder), settings)
    for name, path in adapters.items():
        engine.add_adapter(name, path)
    return engine


def _wanted(
    options: argparse.Namespace, adapters: dict[str, Path], pairs: Sequence[tuple[str, int]], ends: Ends
) -> dict[tuple[str, int], list[int]]:
    """By an engine with one slot and one request at a time, in the order of adapters."""
    with closing(_engine(options, adapters, 1, 1)) as engine:
        return {pair: ids for pair, (ids, _) in zip(pairs, _answers(engine, options, pairs, ends), strict=True)}


def _answers(
    engine: Engine, options: argparse.Namespace, asked: Sequence[tuple[str, int]], ends: Ends
) -> list[tuple[list[int], float]]:
    """Tokens of each answer, and from its arrival to its end, ms. `at_once` requests at any time."""
    prompts = [
        engine.checkpoint.prompts.chat([{"role": "user", "content": [{"type": "text", "text": text}]}], [])
        for text in QUESTIONS
    ]
    replies: list[Reply] = []
    for number, (name, question) in enumerate(asked):
        while number - sum(each.ended for each in replies) >= options.at_once:
            _step(engine, ends)
        replies.append(
            engine.submit(VlmRequest(prompts[question], max_tokens=options.tokens, ignore_eos=True, adapter=name))
        )
    while not all(each.ended for each in replies):
        _step(engine, ends)
    found = []
    for each in replies:
        answer = each.result(0)
        if answer.finish != "length":
            raise RuntimeError(f"an answer ended with {answer.finish}: {answer.detail}")
        times = answer.usage.timings
        found.append((answer.ids, (times.ended_ns - times.arrived_ns) / 1e6))
    return found


def _step(engine: Engine, ends: Ends) -> None:
    if time.monotonic() > ends.hard_s:
        raise OverError
    if not engine.step():
        engine.wait(1.0)


def _row(
    engine: Engine,
    before: PoolStats,
    options: argparse.Namespace,
    slots: int,
    asked: Sequence[tuple[str, int]],
    wanted: dict[tuple[str, int], list[int]],
    found: Sequence[tuple[list[int], float]],
) -> dict[str, Any]:
    assert engine.adapters is not None
    stats = engine.adapters.pool.stats
    loads, load_s = stats.loads - before.loads, stats.load_s - before.load_s
    took_ms = [each for _, each in found]
    return {
        "slots": slots, "adapters": options.adapters, "rank": options.rank, "requests": len(asked),
        "cores": options.cores, "n": len(found),
        "wrong": sum(ids != wanted[pair] for pair, (ids, _) in zip(asked, found, strict=True)),
        "answers": len(wanted), "distinct": len({tuple(ids) for ids in wanted.values()}),
        "loads": loads, "evictions": stats.evictions - before.evictions, "load_ms": 1e3 * load_s / max(loads, 1),
        "hit_share": 1 - loads / len(asked), "e2e_ms": median(took_ms),
        "e2e_p99_ms": float(np.percentile(took_ms, 99)),
    }  # fmt: skip


def summarised(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """wrong: answers that are not their adapter's. grew_mib: over the second half of the requests. e2e_over_resident:
    what is not hidden."""
    if len(rows) < 2:
        return {}
    few, all_of_them = rows
    return {
        "wrong": few["wrong"] + all_of_them["wrong"],
        "load_ms": few["load_ms"],
        "grew_mib": few["grew_mib"],
        "e2e_over_resident": few["e2e_ms"] / all_of_them["e2e_ms"],
    }


def table(report: Report) -> str:
    numbers = [f"{name:24} {value:10.4g}" for name, value in report.summary.items()]
    return "\n\n".join("\n".join(part) for part in (in_columns(report.rows, COLUMNS), [PAPER], numbers))


def resident_mib() -> float:
    """Of this process, after its heap was trimmed."""
    trim_heap()
    return int(STATM.read_text().split()[1]) * PAGE / (1 << 20)
