"""`auras bench lora-heads`: a task head beside decoding the same answer (VaLoRA 4.2.2, figures 11 and 16).

One engine, one adapter with a head, one request at a time. Requests with the head and requests that decode a few tokens
alternate, on new prompts of the same length. `decoder` is the time in prefill and decode; `request` the whole time, for
prompts that begin with an image too, whose vision both kinds have.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median

import numpy as np
import torch
from safetensors.torch import save_file

from auras_ros import resources
from auras_ros.bench.figures.paper import PaperFigure, beside_ours
from auras_ros.bench.lora.adapter_folders import write_adapters
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, listed, refusing
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import Timings, VlmRequest
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, run_parts
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import spread
from auras_ros.report.table import Column, in_columns

ADAPTER, CLASSES = "adapter-0", 16
WORDS = "the tee is on its goal and the block must turn left: how many red things are in the way?"
PAPER = (
    PaperFigure("latency saved by a head (video analytics)", "41-63", "%", "6.3.1"),
    PaperFigure("rounds of inference saved on action recognition", 4.0, "", "4.2.2"),
)
COLUMNS: tuple[Column, ...] = (
    ("model", "{model}"),
    ("prompt tokens", "{prefix}"),
    ("what", "{what}"),
    ("head ms", "{head_ms:.2f}"),
    ("decoding ms", "{decoding_ms:.2f}"),
    ("saved", "{saved:.1%}"),
    ("quartiles", "{saved_low:.1%} to {saved_high:.1%}"),
    ("cores", "{cores}"),
    ("n", "{n}"),
)


def run(argv: list[str], progress: Say) -> Report:
    parser = bench_parser("lora-heads", __doc__)
    parser.add_argument("folder", nargs="?", default="pusht-vlm", help="of a vision-language model (pusht-vlm)")
    parser.add_argument("--prefixes", type=listed(int), default=[64, 256], help="tokens of a prompt (64,256)")
    parser.add_argument("--tokens", type=int, default=5, help="of the answer that is decoded (5)")
    parser.add_argument("--rank", type=int, default=16, help="of the adapter (16)")
    parser.add_argument("--image-px", type=int, default=224, help="side of an image, for whole requests with one (224)")
    parser.add_argument("--rounds", type=int, default=40, help="of a request of each kind (40)")
    parser.add_argument("--cores", type=int, default=available(), help="(all)")
    add_minutes(parser, 10.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, tokens=1, rank=1, image_px=16, rounds=2, cores=1, seed=0)
    if options.cores > available():
        parser.error(f"--cores: {options.cores} of the {available()} of this process")
    if not options.prefixes or min(options.prefixes) < 4:
        parser.error(f"--prefixes: from 4 tokens on, got {options.prefixes}")
    with refusing(parser, FileNotFoundError, CheckpointError, what="folder: "):
        options.folder = resources.checkpoint(options.folder)
    report = Report("lora-heads")
    with on_cores(options.cores):
        run_parts(report, options.minutes, {"lora-heads": lambda ends: _measure(report, options, ends, progress)})
    for row in report.rows:
        if row["what"] == "decoder" and not row["image"]:
            report.summary[f"latency_saved_{row['prefix']}"] = row["saved"]
    if "latency_saved_64" in report.summary:
        report.summary["latency_saved"] = report.summary["latency_saved_64"]
    return report


def _measure(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_adapters(options.folder, Path(folder), 1, options.rank, options.seed).values()
        checkpoint = open_vlm(options.folder)
        write_head(path, checkpoint.targets.width)
        settings = EngineOptions(
            max_loras=1, max_lora_rank=options.rank, running=1, prefix_cache=False, image_cache_mib=0
        )
        with closing(make_engine(checkpoint, settings)) as engine:
            engine.add_adapter(ADAPTER, path)
            chance = random.Random(options.seed)
            for prefix in options.prefixes:
                _compare(report, options, engine, lambda prefix=prefix: _text(engine, prefix, chance), False, ends, say)  # type: ignore[misc]
            _compare(report, options, engine, lambda: _with_image(engine, options.image_px, chance), True, ends, say)


def write_head(folder: Path, width: int) -> None:
    """Of CLASSES, random."""
    labels = [f"class {number}" for number in range(CLASSES)]
    config = {"kind": "classification", "labels": labels}
    (folder / "task_head.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({"weight": torch.randn(CLASSES, width), "bias": torch.zeros(CLASSES)}, folder / "task_head.safetensors")


def _text(engine: Engine, tokens: int, chance: random.Random) -> VlmPrompt:
    known: list[int] = engine.checkpoint.prompts.plain(WORDS).ids.tolist()
    return engine.checkpoint.prompts.tokens(chance.choices(known, k=tokens))


def _with_image(engine: Engine, side: int, chance: random.Random) -> VlmPrompt:
    pixels = np.random.default_rng(chance.getrandbits(32)).integers(0, 256, (side, side, 3), np.uint8)
    content = [{"type": "image"}, {"type": "text", "text": "What is in the picture?"}]
    return engine.checkpoint.prompts.chat([{"role": "user", "content": content}], [pixels])


def _compare(
    report: Report,
    options: argparse.Namespace,
    engine: Engine,
    prompt: Callable[[], VlmPrompt],
    image: bool,
    ends: Ends,
    say: Say,
) -> None:
    """One kind of prompt: rows for the decoder's time and the whole request's."""
    found: dict[bool, list[Timings]] = {True: [], False: []}
    prefix = len(prompt().ids)
    say(f"prompts of {prefix} tokens{', with an image' if image else ''}")
    for number in range(options.rounds + 1):
        if number > 2 and time.monotonic() > ends.soft_s:
            break
        for head in (True, False) if number % 2 else (False, True):
            timings = _timings(engine, VlmRequest(
                prompt(), max_tokens=options.tokens, ignore_eos=True, adapter=ADAPTER, head=head
            ))  # fmt: skip
            if number:
                found[head].append(timings)
    times: dict[str, Callable[[Timings], int]] = {
        "decoder": lambda each: each.prefill_ns + each.decode_ns,
        "request": lambda each: each.ended_ns - each.arrived_ns,
    }
    where = {"model": engine.checkpoint.name, "prefix": prefix, "image": image, "tokens": options.tokens}
    for what, time_of in times.items():
        head_ms, decoding_ms = ([time_of(each) / 1e6 for each in found[kind]] for kind in (True, False))
        low, saved, high = spread([1 - one / other for one, other in zip(head_ms, decoding_ms, strict=True)])
        report.rows.append({
            **where, "what": f"{what}{', image' if image and what == 'request' else ''}", "rank": options.rank,
            "cores": options.cores, "n": len(head_ms), "head_ms": median(head_ms), "decoding_ms": median(decoding_ms),
            "saved": saved, "saved_low": low, "saved_high": high,
        })  # fmt: skip


def _timings(engine: Engine, request: VlmRequest) -> Timings:
    reply = engine.submit(request)
    while not reply.ended:
        if not engine.step():
            engine.wait(1.0)
    answer = reply.result(0)
    if answer.finish not in ("stop", "length"):
        raise RuntimeError(f"an answer ended with {answer.finish}: {answer.detail}")
    return answer.usage.timings


def table(report: Report) -> str:
    ours = beside_ours([each.row(report.summary) for each in PAPER], "VaLoRA")
    numbers = [f"{name:24} {value:8.3f}" for name, value in report.summary.items()]
    return "\n\n".join("\n".join(part) for part in (in_columns(report.rows, COLUMNS, left=(0, 2)), ours, numbers))
