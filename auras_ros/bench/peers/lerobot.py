"""LeRobot's DiffusionPolicy, eager and compiled, compared with seq and auras of the same weights.

The peer's process makes a policy from a seed and saves it as LeRobot saves a trained one; our loader reads our policy
from that folder. Before anything is timed, equal observations and noise must give equal chunks in all four, and
different observations different chunks, as the comparison would prove nothing otherwise. On a GPU both sides compute
convolutions in full float32.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros import __version__
from auras_ros.bench.peers.contest import CHECKED, RateSource, UnequalError, compare, our_sources
from auras_ros.bench.peers.lerobot_shapes import SAMPLERS, SHAPES, robot_of
from auras_ros.bench.peers.process import PeerError, PeerProcess, PeerRefusedError
from auras_ros.device.make import kind_of
from auras_ros.device.precision import full_float32
from auras_ros.measure.compare import Job
from auras_ros.measure.executors import Bench
from auras_ros.measure.window import Length
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders.open import load
from auras_ros.report.result import Say

PART = "lerobot"
EAGER, COMPILED = "eager", "compiled"
PAIRS = [(COMPILED, EAGER), ("seq", EAGER), ("auras", EAGER), ("auras", COMPILED), ("auras", "seq")]
TOLERANCE = 1e-3  # of an action's range: a hundred steps magnify rounding; a different network exceeds this by far
APART = 10 * TOLERANCE  # minimum difference of two observations' chunks


class PeerUnusableError(PeerError):
    """The given environment has no usable LeRobot."""


@dataclass(frozen=True)
class LeRobotPair:
    """Their process and our policy, with the same weights. where: the folder of the exchanged tensors."""

    peer: PeerProcess
    bench: Bench
    checkpoint: Checkpoint
    where: Path


def measure(python: Path, job: Job) -> None:
    """Writes rows and ratios to the report; if interrupted, those of whole rounds. Raises PeerUnusableError (a
    PeerError), PeerError, PlanError, UnequalError if there is nothing to compare, and OverError."""
    options = job.options
    with (
        TemporaryDirectory() as folder,
        PeerProcess(PART, python, options.limit, end_s=job.ends.hard_s) as peer,
        full_float32(),
    ):
        job.say(f"{PART}: {python}")
        try:
            versions = peer.ask("hello", "versions")["versions"]
        except PeerError as error:
            raise PeerUnusableError(f"{error} ({python}; --setup DIR makes an environment for it)") from error
        made = _make(peer, Path(folder), job)
        common = {"sampler": options.sampler, "million": made["million"], "steps": made["steps"]}
        checkpoint = load(Path(folder))
        (generation,) = checkpoint.plans
        with job.bench(checkpoint.policy(generation)) as bench:
            plans = Plan(generation), Plan(generation, "auras", pp_generation=options.pp_generation)
            check_plan(bench.policy, plans[1])
            sides = LeRobotPair(peer, bench, checkpoint, Path(folder))
            compare(job, _sources(sides, plans, versions, job), PAIRS, common)


def _make(peer: PeerProcess, folder: Path, job: Job) -> dict[str, Any]:
    """The peer's policy, saved in the folder."""
    shape, options, kind = job.options.shape, job.options, kind_of(job.options.device)
    job.say(f"{PART}: making the {shape} policy")
    sizes = SHAPES[shape]
    described = {**sizes, "config": {**sizes["config"], **SAMPLERS[options.sampler]}}
    made = peer.ask("make", "million", "steps", folder=str(folder), shape=described, seed=options.seed, device=kind)
    robot = robot_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    (folder / "robot.json").write_text(json.dumps(robot), encoding="utf-8")
    return made


def _joined(examples: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    return {"images": torch.cat([one for one, _ in examples]), "state": torch.cat([one for _, one in examples])}


def _sources(sides: LeRobotPair, plans: Sequence[Plan], versions: Mapping[str, str], job: Job) -> list[RateSource]:
    """All four contenders (three with --no-compile), after their chunks were compared. Both sides get the same random
    observations."""
    save_file(_joined(sides.bench.feed.examples), sides.where / "observations.safetensors")
    sides.peer.ask("observe", inputs=str(sides.where / "observations.safetensors"))
    job.say(f"{PART}: checking that all compute the same")
    here = {"torch": torch.__version__, "auras_ros": __version__}
    expected = their_chunks(sides, compiled=False)
    check_apart(expected, _span(sides))
    theirs = [RateSource(EAGER, their_rate(sides.peer, compiled=False), {**versions, "max_difference": 0.0})]
    ours = our_sources(
        sides.bench,
        plans,
        lambda name, chunks: {**here, "max_difference": difference(name, chunks, expected, _span(sides))},
    )
    if job.options.compile:
        theirs.append(_compiled(sides, expected, versions, job.say))
    return [*theirs, *ours]


def _compiled(sides: LeRobotPair, expected: Tensor, versions: Mapping[str, str], progress: Say) -> RateSource:
    """Not measured if torch.compile does not run there; the row then has the reason."""
    progress(f"{PART}: torch.compile of the U-Net (a minute or more; not counted)")
    try:
        told = sides.peer.ask("compile", "seconds", "mode")
    except PeerRefusedError as error:
        return RateSource(COMPILED, None, versions, why=f"not measured: torch.compile does not run there: {error}")
    differ = difference(COMPILED, their_chunks(sides, compiled=True), expected, _span(sides))
    fields = {**versions, "max_difference": differ, "compile_s": told["seconds"], "compile_mode": told["mode"]}
    return RateSource(COMPILED, their_rate(sides.peer, compiled=True), fields)


# -- chunks -------------------------------------------------------------------------------------------


def their_chunks(sides: LeRobotPair, compiled: bool) -> Tensor:
    """The chunks of the first observations, all with the noise of request 0, in units of the robot: [CHECKED, chunk,
    channels]."""
    inputs, outputs = (str(sides.where / f"{name}.safetensors") for name in ("inputs", "outputs"))
    noise = sides.bench.noise(0).expand(CHECKED, -1, -1, -1).contiguous()
    save_file({**_joined(sides.bench.feed.examples[:CHECKED]), "noise": noise}, inputs)
    sides.peer.ask("outputs", inputs=inputs, outputs=outputs, compiled=compiled)
    try:
        return load_file(outputs)["actions"].double()
    except (OSError, SafetensorError, KeyError) as error:
        raise PeerError(f"{PART}: outputs: no tensor 'actions' in {outputs}: {error}") from error


def _span(sides: LeRobotPair) -> Tensor:
    """The range of each channel in units of the robot, [channels]."""
    return 2 * sides.checkpoint.trained.scale


def difference(name: str, got: Tensor, expected: Tensor, span: Tensor) -> float:
    """The largest difference, as a share of the action's range. Raises UnequalError above TOLERANCE, and for chunks of
    another shape or with values that are not finite."""
    if got.shape != expected.shape:
        raise UnequalError(f"{PART}: {name}: chunks are {list(got.shape)}, LeRobot's {list(expected.shape)}")
    apart = (got - expected).abs() / span
    worst = float(apart.max())
    if not worst <= TOLERANCE:
        row, action, channel = (int(at) for at in torch.unravel_index(apart.argmax(), apart.shape))
        raise UnequalError(
            f"{PART}: {name} differs from LeRobot's eager policy by up to {worst:.3g} of an action's range "
            f"(observation {row}, action {action}, channel {channel}), more than {TOLERANCE:g}: nothing is timed"
        )
    return worst


def check_apart(chunks: Tensor, span: Tensor) -> None:
    """Check that different observations have different chunks. Raises UnequalError: equal ones would prove nothing."""
    for one, other in combinations(chunks, 2):
        least = float(((one - other).abs() / span).max())
        if not least >= APART:
            raise UnequalError(
                f"{PART}: LeRobot's chunks of two observations differ by {least:.3g} of an action's range, less than "
                f"{APART:g}: a comparison with ours would prove nothing"
            )


def their_rate(peer: PeerProcess, compiled: bool) -> Callable[[Length], float]:
    """Chunks per second of requests one after another, timed in the peer's process."""

    def rate(length: Length) -> float:
        told = peer.ask("time", "seconds", chunks=length.chunks, seconds=length.seconds, compiled=compiled)
        took = [float(each) for each in told["seconds"]]
        if len(took) < length.chunks or not min(took) > 0:
            raise PeerError(f"{PART}: time: expected {length.chunks} requests or more, but their times are {took} s")
        return len(took) / sum(took)

    return rate
