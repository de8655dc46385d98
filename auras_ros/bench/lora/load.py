"""`auras bench lora-load`: many adapters on one vision-language model, by policy, and vLLM beside them (VaLoRA figures
14, 19 and 22).

Every side is a server with the same model, the same PEFT folders and the same cores, and gets the same requests from
the same client, one side at a time in interleaved rounds; tokens of all sides are checked for equality before. First a
closed loop gives the throughput of `unmerge-only`; then requests come at 70 % of it (`--shares`: at several rates in
turn). The figure is VaLoRA's average token latency: the sum of all requests' times over the sum of their tokens.

Whole systems are what the paper compares with: `unmerge-only` with S-LoRA's and with Punica's way to multiply, dLoRA's
policy, and one adapter at a time; ours is `per-forward` with this package's own way, and the merged weights of
`--merged` adapters in memory. dLoRA's system adds one's to the base model's and takes it away again. Then every policy
again with our way, VaLoRA's algorithm 1 too, as they are published: with one adapter's merged weights, here beside the
base model's; and, `merged-all`, with as many as ours. All that have a theta have the same. vLLM runs in the
environment of `auras bench peers-vlm --setup DIR --only-setup`. `lora-skew` and `lora-adapters` are the same for
several skews (figure 22), and for several numbers of adapters, more than there is memory for, and ranks (figure 23).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from auras_ros.bench.lora.adapter_folders import write_adapters
from auras_ros.bench.lora.load_show import LOAD, draw, table
from auras_ros.bench.lora.trace import LoraTrace
from auras_ros.bench.options import bench_parser, check_least, listed, refusing
from auras_ros.bench.peers_vlm import environment
from auras_ros.bench.peers_vlm.command import add_contest, check_contest, check_shares, model_folder
from auras_ros.bench.peers_vlm.contest import CLOSED, POISSON, ModelWindows, PeersContest, Window
from auras_ros.bench.peers_vlm.equality import UnequalTokensError
from auras_ros.bench.peers_vlm.models import MODELS
from auras_ros.bench.peers_vlm.near_ties import is_near_tie
from auras_ros.bench.peers_vlm.server import ServerCommand, ServerGroup
from auras_ros.bench.peers_vlm.sides import AT_ONCE, OUR_OPTIONS, OURS, SERVE, VLLM, openmp_of, vllm
from auras_ros.bench.peers_vlm.stream import StreamedAnswer
from auras_ros.bench.peers_vlm.workload import Shape
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table_file import cpu_name, read_own_table, write_table
from auras_ros.measure.cores import on_cores
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.own_environment import SetupError
from auras_ros.report.result import Report, Say, key
from auras_ros.report.statistics import student
from auras_ros.report.table import grouped_by

__all__ = ["contests", "draw", "run", "table"]
OWN, MERGE_ONLY = f"{OURS} per-forward", f"{OURS} merge-only"


class LoraSide(NamedTuple):
    """way: to multiply; "" is what the searched table says. decode_way: in decodes, if that is another one. in_place:
    what is merged is added to the base model's weights and taken away again, as dLoRA does (3.2). several: the side
    keeps `AdapterLoad.merged` adapters' merged weights, and not one's."""

    policy: str
    way: str = ""
    decode_way: str = ""
    in_place: bool = False
    several: bool = False

    def ways(self, folder: Path, threads: int) -> str:
        """Option `lora_ways`: a way's name, or the file of a table, which is written to the folder. threads: of the
        side's torch."""
        if not self.decode_way:
            return self.way
        path, any_size = folder / f"{self.way}-{self.decode_way}.json", (1, 1, 1, 1)  # the nearest shape of a phase
        chosen = {"prefill": self.way, "decode": self.decode_way}.items()
        shapes = {LoraShape(phase, *any_size, parts, 1): way for phase, way in chosen for parts in (1, 2, 3)}
        write_table(path, cpu_name(threads), shapes)
        return str(path)


SYSTEMS = {
    OWN: LoraSide("per-forward", several=True),
    "s-lora": LoraSide("unmerge-only", "segmented"),
    "punica": LoraSide("unmerge-only", "segmented", decode_way="gathered"),  # its SGMV and its BGMV
    # dLoRA's einsum would join the adapters of each batch, which takes longer here
    "dlora": LoraSide("dlora", "segmented", in_place=True),
    MERGE_ONLY: LoraSide("merge-only"),
}
POLICIES = {f"{OURS} {each}": LoraSide(each) for each in ("unmerge-only", "dlora", "valora")}
MERGED_ALL = {f"{OURS} {each} merged-all": LoraSide(each, several=True) for each in ("merge-only", "dlora", "valora")}
SIDES = SYSTEMS | POLICIES | MERGED_ALL
# Sides without which a gain does not have its plain name: it would be over whoever happened to be there.
BEST_OF = {"gain_over_best": {"s-lora", "dlora", MERGE_ONLY}, "policy_gain": {*POLICIES, MERGE_ONLY}}
# Keys, values and adapters of one of ours: eight adapters of rank 128 and the requests that the policies choose among.
KV_MIB = 512
MOST_CLOSED = 6  # rounds of a closed loop: a median of these is enough for a rate
PAPER_SKEW = 0.6  # at which the summary says what holds
RATED = f"{OURS} unmerge-only"  # whose saturation the rate is a share of


class AdapterLoad(NamedTuple):
    """skew: share of the most wanted adapter. slots: adapters in memory at once; merged: those whose merged weights are
    there too, on sides that keep those of several."""

    skew: float
    adapters: int
    rank: int
    slots: int
    merged: int


def run(argv: list[str], progress: Say) -> Report:
    return contests("lora-load", __doc__, argv, progress)


def contests(bench: str, about: str | None, argv: list[str], progress: Say, **defaults: object) -> Report:
    """defaults: of options, where they are not `lora-load`'s."""
    parser = _parser(bench, about)
    parser.set_defaults(**defaults)
    options = parser.parse_args(argv)
    _check(parser, options)
    report = Report(bench, more={"trace": {}})
    with refusing(parser, SetupError):
        python = environment.setup(options.setup, progress)
        report.more["peers"] = environment.versions(python)
    loads = [
        AdapterLoad(skew, adapters, rank, slots, min(options.merged or slots, slots))
        for skew, adapters, rank in product(options.skews, options.adapters, options.ranks)
        for slots in [min(options.slots or adapters, adapters)]
    ]
    parts: dict[str, MeasureStep] = {
        f"{name}, skew {each.skew:g}, {each.adapters} of rank {each.rank}": partial(
            _measure, report, options, name, each, python, progress
        )
        for name in options.models
        for each in loads
    }
    with on_cores(options.cores):
        run_parts(report, options.minutes, parts)
    report.summary |= summarised(report.rows)
    return report


class LoraContest(PeersContest):
    """The same contest with another trace: each request names its adapter. far: by load and side, answers that are not
    the first side's although the two best tokens were not as good as equal."""

    def __init__(self, trace: LoraTrace, adapters: Sequence[str], *others: Any) -> None:
        super().__init__(*others)
        self._trace, self._adapters = trace, list(adapters)
        self.far: dict[tuple[str, str], int] = {}

    def _bodies(self, what: str, count: int | None = None) -> list[bytes]:
        seed = f"{self._options.seed} {self.measured.model} {self._trace.skew} {what}"
        return self._trace.bodies(self._adapters, count or self._options.requests, seed)

    def _arrivals(self, rate_hz: float, count: int, seed: str) -> list[float]:
        return self._trace.arrivals(rate_hz, count, seed)

    def _check(self, reference: str, servers: dict[str, ServerGroup]) -> None:
        super()._check(reference, servers)
        if missing := [side for side in (OWN, RATED) if side not in servers]:
            raise UnequalTokensError(f"{self.measured.model}: nothing is compared without {', '.join(missing)}")

    def _look_back(self, servers: Mapping[str, ServerGroup]) -> None:
        reference = next(iter(servers))
        for load in self.measured.rates_hz:
            self._look_at(load, reference, servers[reference])

    def _look_at(self, load: str, reference: str, server: ServerGroup) -> None:
        others = dict(self.measured.windows.get(load, {}))
        wanted = others.pop(reference, [])
        bodies = [self._bodies(f"{load} {number}") for number in range(len(wanted))]
        with server.running():
            for side, found in others.items() if wanted else ():
                self._say(f"{self.measured.model}, {load}: where answers of {side} part from those of {reference}")
                try:
                    self.far[load, side] = sum(
                        not is_near_tie(server.ports[0], bodies[number][place], mine.text, theirs.text, self._limit_s())
                        for number, place, mine, theirs in unequal(found, wanted)
                    )
                except (OSError, ValueError) as error:
                    self._report.fail(f"{self.measured.model}, unequal answers of {side}", error)

    def _closed_rounds(self) -> int:
        return min(int(self._options.rounds), MOST_CLOSED)

    def _rates_hz(self) -> dict[str, float]:
        windows = self.measured.windows[CLOSED].get(RATED)
        saturation_hz = median(each.load.rate_hz for each in windows) if windows else 0.0
        return {at_share(each): each * saturation_hz for each in self._options.shares} if windows else {}


def at_share(share: float) -> str:
    """The load's name."""
    return f"{POISSON}, {share:g} of saturation"


def _measure(
    report: Report, options: argparse.Namespace, name: str, asked: AdapterLoad, python: Path, say: Say, ends: Ends
) -> None:
    model = MODELS[name]
    folder = model_folder(model, python, options.setup / "models", say)
    into = options.setup / "adapters" / f"{name}-{asked.rank}"
    adapters = write_adapters(folder, into, asked.adapters, asked.rank, options.seed)
    trace = LoraTrace(asked.skew)
    report.more["trace"][f"{asked.skew:g}"] = trace.describe()
    settings = argparse.Namespace(**vars(options) | {"requests": options.requests or model.requests})
    measured = ModelWindows(name, Shape(trace.image_px, trace.with_image, (0, 0), (0, 0)), options.cores)
    commands = [] if options.no_vllm else [vllm_side(python, folder, name, adapters, asked)]
    commands += [our_side(side, python, folder, name, adapters, asked, options) for side in options.sides]
    contest = LoraContest(trace, list(adapters), measured, settings, report, ends, say)
    try:
        contest.run(commands)
    finally:
        report.rows += load_rows(measured, [each.name for each in commands], options, asked, contest.far)


def our_side(
    side: str,
    python: Path,
    folder: Path,
    model: str,
    adapters: Mapping[str, Path],
    asked: AdapterLoad,
    options: argparse.Namespace,
) -> ServerCommand:
    own = SIDES[side]
    words_ = [
        *SERVE,
        str(folder),
        "--name",
        model,
        "--port",
        "{port}",
        *OUR_OPTIONS,
        "--lora-modules",
        _listed(adapters, ","),
    ]
    words_ += ["--max-loras", str(asked.slots), "--max-lora-rank", str(asked.rank), "--kv-mib", str(KV_MIB)]
    words_ += ["--lora-policy", own.policy, "--lora-theta-ms", str(options.theta_ms)]
    words_ += ["--max-merged-loras", str(max(merged_loras(side, asked), 1))]
    ways = own.ways(options.setup, options.cores) or str(options.table or "")
    words_ += ["--lora-ways", ways, *(["--no-lora-exact"] if own.in_place else [])]
    return ServerCommand(side, words_, openmp_of(python), own=True)


def merged_loras(side: str, asked: AdapterLoad) -> int:
    """Adapters whose merged weights the side keeps."""
    own = SIDES.get(side, LoraSide("unmerge-only"))
    return 0 if own.policy == "unmerge-only" else asked.merged if own.several else 1


def vllm_side(
    python: Path, folder: Path, model: str, adapters: Mapping[str, Path], asked: AdapterLoad
) -> ServerCommand:
    """Eager: adapters turn compilation off on a CPU. A slot more than adapters: with fewer its rows without an adapter
    get that of the last slot."""
    command = vllm(python, folder, model, "eager")
    more = ["--enable-lora", "--max-loras", str(asked.slots + 1), "--max-lora-rank", str(max(asked.rank, 8))]
    more += ["--max-cpu-loras", str(max(len(adapters), asked.slots + 1))]
    more += ["--lora-modules", *(f"{name}={path}" for name, path in adapters.items())]
    return ServerCommand(command.name, [*command.argv, *more], command.environment)


def _listed(adapters: Mapping[str, Path], mark: str) -> str:
    return mark.join(f"{name}={path}" for name, path in adapters.items())


def unequal(found: Sequence[Window], wanted: Sequence[Window]) -> list[tuple[int, int, StreamedAnswer, StreamedAnswer]]:
    """Round, place in it and both answers of requests to which two sides answered otherwise."""
    return [
        (number, place, mine, theirs)
        for number, (one, other) in enumerate(zip(found, wanted, strict=False))
        for place, (mine, theirs) in enumerate(zip(one.load.answers, other.load.answers, strict=True))
        if mine.text != theirs.text
    ]


def token_ms(window: Window) -> float:
    """Average token latency (VaLoRA 6.1)."""
    answers = window.load.answers
    return 1e3 * sum(each.e2e_s for each in answers) / sum(each.tokens for each in answers)


def load_rows(
    measured: ModelWindows,
    sides: Sequence[str],
    options: argparse.Namespace,
    asked: AdapterLoad,
    far: Mapping[tuple[str, str], int],
) -> list[dict[str, Any]]:
    """ratio: our token latency over the side's, within a round: the mean of the rounds that both have, with its 95 %
    interval. unequal: answers that are not the first side's; far: those of them where its two best tokens were not as
    good as equal, None if nobody looked."""
    rows = list[dict[str, Any]]()
    for share, side in product(options.shares, sides):
        load = at_share(share)
        windows = measured.windows.get(load, {})
        own, found = [token_ms(each) for each in windows.get(OWN, [])], windows.get(side, [])
        row: dict[str, Any] = {
            "model": measured.model, "side": side, **asked._asdict(), "merged": merged_loras(side, asked),
            "theta_ms": options.theta_ms, "batch": AT_ONCE, "share": share, "rate_hz": measured.rates_hz.get(load),
            "dtype": "float32", "cores": measured.cores, "rounds": len(found),
        }  # fmt: skip
        closed = measured.windows.get(CLOSED, {}).get(side, [])
        row["closed_hz"] = median(each.load.rate_hz for each in closed) if closed else None
        if len(found) > 1:
            values = [token_ms(each) for each in found]
            row |= dict(zip(("token_ms", "token_ms_low", "token_ms_high"), student(values), strict=True))
            ratios = [mine / other for mine, other in zip(own, values, strict=False)]
            if len(ratios) > 1:
                row |= dict(zip(("ratio", "ratio_low", "ratio_high"), student(ratios), strict=True))
            answers = [answer for each in found for answer in each.load.answers]
            row["e2e_mean_ms"] = 1e3 * float(np.mean([each.e2e_s for each in answers]))
            if sides[0] in windows:
                row |= {"unequal": len(unequal(found, windows[sides[0]])), "far": far.get((load, side))}
            row["answer_tokens"] = sum(each.tokens for each in answers)
            row["ttft_mean_ms"] = 1e3 * float(np.mean([each.ttft_s for each in answers]))
        else:
            row["why"] = measured.failed.get(side, "not enough rounds")
        rows.append(row)
    return rows


def summarised(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """gain_over_best: 1 less the largest of our ratios over the other whole systems, at skew 0.6, if all of BEST_OF
    were measured; of every skew and share under its own name, over those that were. policy_gain: the same over the
    policies with our way, and the low end of its interval; merged_all_gain: over those with as many adapters' merged
    weights as ours. over_vllm: our ratio over vLLM's. unequal_share: tokens at which an answer becomes another one than
    vLLM's, of all; the most that a side has. unequal_far: those where vLLM's two best tokens are not within the
    tolerance, if all were looked at; unequal_unseen: those that were not."""
    found, worst = dict[str, float](), dict[str, float]()
    shares = [row["unequal"] / row["answer_tokens"] for row in rows if "unequal" in row]
    if shares:
        found["unequal_share"] = max(shares)
    far = [row["far"] for row in rows if row.get("far") is not None]
    if unseen := sum(row.get("unequal", 0) for row in rows if row.get("far") is None):
        found["unequal_unseen"] = unseen
    elif far:
        found["unequal_far"] = sum(far)
    for (model, adapters, rank, skew, share), own in grouped_by([row for row in rows if "ratio" in row], *LOAD).items():
        at = f"{key(model)}_{adapters}_of_{rank}_at_{key(f'{share:g}')}_{key(f'{skew:g}')}"
        of = {row["side"]: row for row in own}
        for name, value in _gains(of).items():
            found[f"{name}_{at}"] = value
            if skew == PAPER_SKEW and of.keys() >= BEST_OF.get(name.removesuffix("_low"), set()):
                worst[name] = (max if name == "over_vllm" else min)(value, worst.get(name, value))
    return found | worst


def _gains(of: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Of one load; of: rows by side."""
    found = dict[str, float]()
    systems = [of[each] for each in SYSTEMS if each in of and each != OWN]
    if systems:
        found["gain_over_best"] = 1 - max(row["ratio"] for row in systems)
    for name, sides in (("policy_gain", BEST_OF["policy_gain"]), ("merged_all_gain", MERGED_ALL)):
        policies = [of[each] for each in sides if each in of]
        if policies:
            found[name] = 1 - max(row["ratio"] for row in policies)
            found[f"{name}_low"] = 1 - max(row["ratio_high"] for row in policies)
    if vllm_row := next((row for side, row in of.items() if side.startswith(VLLM)), None):
        found["over_vllm"] = vllm_row["ratio"]
    return found


def _parser(bench: str, about: str | None) -> argparse.ArgumentParser:
    parser = bench_parser(bench, about)
    parser.add_argument("--setup", type=Path, required=True, metavar="DIR", help="as of `auras bench peers-vlm`")
    parser.add_argument("--models", type=listed(str, MODELS), default=["qwen-60m"], help="(qwen-60m)")
    sides = [*SYSTEMS, *POLICIES]
    words_ = f"of {', '.join(SIDES)} ({','.join(sides)})"
    parser.add_argument("--sides", type=listed(str, list(SIDES)), default=sides, help=words_)
    parser.add_argument("--skews", type=listed(float), default=[0.6], help="share of the most wanted adapter")
    parser.add_argument("--adapters", type=listed(int), default=[8], help="how many there are")
    parser.add_argument("--ranks", type=listed(int), default=[64], help="of all of them (64, the paper's)")
    parser.add_argument("--slots", type=int, default=0, help="adapters in memory at once; 0: all of them")
    kept = f"adapters whose merged weights {OWN} and merged-all keep at once; 0: of all in memory"
    parser.add_argument("--merged", type=int, default=0, help=kept)
    parser.add_argument("--theta-ms", type=int, default=4000, help="what a request may wait before it starves (4000)")
    parser.add_argument("--table", type=Path, help="of `auras bench lora-atmm --search`, for our way to multiply")
    alone = "leave vLLM out, which takes most of the time; answers are compared with those of our first side"
    parser.add_argument("--no-vllm", action="store_true", help=alone)
    rate = f"of {RATED}'s saturation, as rates of arrivals (0.7)"
    parser.add_argument("--shares", type=listed(float), default=[0.7], help=rate)
    add_contest(parser, minutes=60.0)
    return parser


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 for what cannot be run."""
    check_contest(parser, options)
    check_least(parser, options, slots=0, merged=0, theta_ms=1)
    if min(*options.adapters, *options.ranks) < 1:
        parser.error(f"--adapters and --ranks: from 1 on, got {options.adapters} and {options.ranks}")
    if OWN not in options.sides or RATED not in options.sides:
        parser.error(f"--sides: {OWN} and {RATED} are always needed")
    check_shares(parser, "--skews", options.skews)
    check_shares(parser, "--shares", options.shares)
    if options.table is not None:
        with refusing(parser, ValueError, OSError, what="--table: "):
            read_own_table(options.table, cpu_name(options.cores))
