"""Common options of benches, with their checks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from auras_ros.arguments import CommandParser
from auras_ros.bench.policies import names
from auras_ros.device import DeviceError
from auras_ros.device.make import kind_of
from auras_ros.measure.cores import available
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan
from auras_ros.spelling import hint
from auras_ros.values import shown

Value = TypeVar("Value", int, float, str)
Options = argparse.ArgumentParser | argparse._ArgumentGroup
ALL = "all"
MOST_COUNT, MOST_SEED = 1_000_000, 2**32 - 1
MOST_VALUES, MOST_AMOUNT = 1000, 1e9  # of an option that is a list; of one number


def bench_parser(name: str, doc: str | None, example: str = "", help_: bool = True) -> CommandParser:
    """doc: of the bench's module; it is printed as it is written."""
    return CommandParser(f"auras bench {name}", doc, example, help_)


@contextmanager
def refusing(parser: argparse.ArgumentParser, *errors: type[Exception], what: str = "") -> Iterator[None]:
    """These errors end the process with status 2 and one line, which begins with `what`."""
    try:
        yield
    except errors as error:
        parser.error(f"{what}{error}")


def listed(kind: type[Value], known: Collection[Value] = ()) -> Callable[[str], list[Value]]:
    """An argparse type: values separated by commas. known: the only ones that are allowed; empty: any."""

    def parse(text: str) -> list[Value]:
        try:
            values = [kind(part) for part in text.split(",")]
        except ValueError:
            what = "whole numbers" if kind.__name__ == "int" else "numbers"
            raise argparse.ArgumentTypeError(f"expected {what} separated by commas, got {text!r:.80}") from None
        if len(values) > MOST_VALUES:
            raise argparse.ArgumentTypeError(f"expected {MOST_VALUES} values at most, got {len(values)}")
        if large := [value for value in values if _is_too_large(value)]:
            raise argparse.ArgumentTypeError(f"expected numbers up to {MOST_AMOUNT:g}, got {shown(large[0])}")
        if unknown := [value for value in values if known and value not in known]:
            raise argparse.ArgumentTypeError(
                f"{unknown[0]!r:.80} is not known{hint(str(unknown[0]), map(str, known), show_all=True)}"
            )
        return values

    return parse


def _is_too_large(value: object) -> bool:
    """Whether it is a number beyond MOST_AMOUNT, or none at all."""
    return isinstance(value, int | float) and not abs(value) <= MOST_AMOUNT


def amount(text: str) -> float:
    """An argparse type: a number from 0 to MOST_AMOUNT. Without a finite length a window would never end."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r:.80}")
    if number > MOST_AMOUNT:
        raise argparse.ArgumentTypeError(f"expected a number of at most {MOST_AMOUNT:g}, got {text!r:.80}")
    return number


def add_device(options: Options) -> None:
    options.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if any")


def add_policies(parser: argparse.ArgumentParser, defaults: Mapping[str, Sequence[str]]) -> None:
    """The policies that a figure measures, and their steps. defaults: policies for `cuda` and for `cpu`."""
    some = "; ".join(f"{','.join(which)} on {kind}" for kind, which in defaults.items())
    known = names()
    parser.add_argument("--policy", type=listed(str, known), help=f"some of {', '.join(known)} ({some})")
    add_steps(parser)


def add_steps(options: Options) -> None:
    options.add_argument("--steps", type=int, default=100, help="denoising steps of a chunk (100)")


def add_windows(options: Options, *, rounds: int = 5, seconds: float = 0.5) -> None:
    """Options of competitors that are measured in interleaved rounds, with a window each."""
    options.add_argument("--rounds", type=int, default=rounds, help=f"interleaved rounds of all competitors ({rounds})")
    options.add_argument("--chunks", type=int, default=3, help="least chunks of a worker in a window (3)")
    options.add_argument("--seconds", type=amount, default=seconds, help=f"least seconds of a window ({seconds:g})")


def add_minutes(options: Options, minutes: float) -> None:
    help_ = f"time limit of the whole bench: with fewer rounds if needed; skipped parts are named ({minutes:g})"
    options.add_argument("--minutes", type=amount, default=minutes, help=help_)


def add_seed(options: Options) -> None:
    options.add_argument("--seed", type=int, default=0, help="seed of observations, noise and the order of rounds (0)")


def check_least(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> None:
    """Exits with status 2, naming the option, if a value is below its minimum, or so large that memory would not hold
    what is made of it."""
    for name, value in least.items():
        given, most = getattr(options, name), MOST_SEED if name == "seed" else MOST_COUNT
        if not value <= given <= most:
            limit = f"at least {value}" if given < value else f"at most {most}"
            parser.error(f"--{name.replace('_', '-')} must be {limit}, got {shown(given)}")


def check_cores(parser: argparse.ArgumentParser, given: Sequence[str] | None, kind: str) -> list[int]:
    """The numbers of --cores, the fair one first. Exits with status 2 if one is invalid."""
    most = available()
    counts = []
    for word in given or (["1", ALL] if kind == "cpu" else [ALL]):
        count = most if word == ALL else int(word) if word.isdecimal() and len(word) < 10 else 0
        if not 1 <= count <= most:
            parser.error(f"--cores: from 1 to the {most} of this process, or {ALL}, got {word!r:.80}")
        if kind != "cpu" and count != most:
            parser.error(f"--cores: with a GPU the host's threads only launch; must be {ALL}, got '{word}'")
        counts.append(count)
    return list(dict.fromkeys(counts))


def add_job_options(
    options: Options,
    *,
    rounds: int = 5,
    minutes: float | None = 10.0,
    seconds: float = 0.5,
    windows: bool = True,
) -> None:
    """minutes: None where a figure's own --minutes and --seed count. windows: see `policy_parser`."""
    add_device(options)
    if windows:
        add_windows(options, rounds=rounds, seconds=seconds)
    cores = f"cores of each side, one comparison for each (1,{ALL}; with a GPU {ALL})"
    options.add_argument("--cores", type=listed(str), help=cores)
    if minutes is not None:
        add_minutes(options, minutes)
        add_seed(options)


def check_job_options(parser: argparse.ArgumentParser, options: argparse.Namespace, **least: int) -> str:
    """Fill in cores, and the length of a window if there are windows; return `cpu` or `cuda`. Exits with status 2 if an
    option is invalid."""
    if "rounds" in options:
        options.length = Length(options.chunks, options.seconds)
        least |= {"rounds": 1, "chunks": 1}
    check_least(parser, options, seed=0, **least)
    kind = kind_of(options.device)
    options.cores = check_cores(parser, options.cores, kind)
    return kind


def check_stages(parser: argparse.ArgumentParser, stages: int, steps: int) -> None:
    if stages > steps:
        parser.error(f"--pp-generation: {stages} stages for {steps} steps")


def policy_parser(
    name: str, doc: str | None, defaults: Mapping[str, Sequence[str]], stages: int, windows: bool = True
) -> argparse.ArgumentParser:
    """For a figure that measures policies in seq and auras. stages: of denoising by default. windows: whether it
    measures rates in interleaved rounds."""
    parser = bench_parser(name, doc)
    add_policies(parser, defaults)
    parser.add_argument("--pp-generation", type=int, default=stages, help=f"stages of denoising ({stages})")
    add_job_options(parser, windows=windows)
    return parser


@contextmanager
def checking_policies(
    parser: argparse.ArgumentParser, options: argparse.Namespace, defaults: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Fill in the defaults that depend on the device; yields `cpu` or `cuda`, for those that a figure adds. Exits with
    status 2 if the options cannot be measured, or if a ValueError or DeviceError is raised inside."""
    kind = check_job_options(parser, options, steps=2)
    options.policy = options.policy or defaults[kind]
    with refusing(parser, ValueError, DeviceError):
        Plan("quick", "auras", pp_generation=options.pp_generation)
        yield kind
    check_stages(parser, options.pp_generation, options.steps)
