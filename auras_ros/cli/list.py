"""`auras list`: names that commands accept: checkpoints, vision-language models and their adapters, configs, simulators
and tasks, architectures, benches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.json_file import read_json
from auras_ros.cli.bench import BENCHES
from auras_ros.cli.command import command_parser
from auras_ros.registry import registered
from auras_ros.spelling import hint

Line = tuple[str, str]
EXAMPLE = """
example
  auras list                 everything, a line each
  auras list checkpoints     the shipped ones; any other is given by its folder
"""


def checkpoints() -> Iterator[Line]:
    """From their manifests; no weights are read."""
    for path in sorted((resources.share_dir() / "checkpoints").glob("*/policy.json")):
        try:
            told = read_json(path)
            cameras = ", ".join(each["name"] for each in told["observation"]["cameras"])
            channels = ", ".join(each["name"] for each in told["action"]["channels"])
            plans = ", ".join(told["plans"])
            yield path.parent.name, f"{told['type']}; plans {plans}; cameras {cameras}; actions {channels}"
        except (CheckpointError, KeyError, TypeError) as error:
            yield path.parent.name, f"cannot be read: {error}"


def models() -> Iterator[Line]:
    """Vision-language models, for `auras serve`, the node vlm and `auras_ros.load_vlm`."""
    for path in sorted((resources.share_dir() / "checkpoints").glob("*/config.json")):
        try:
            yield path.parent.name, f"vision-language model, {read_json(path)['model_type']}"
        except (CheckpointError, KeyError) as error:
            yield path.parent.name, f"cannot be read: {error}"


def adapters() -> Iterator[Line]:
    """LoRA adapters of these models, for `--lora-modules NAME=ADAPTER` and the node's `loras`."""
    checkpoints = resources.share_dir() / "checkpoints"
    for path in sorted(checkpoints.glob("*/*/adapter_config.json")):
        try:
            told = read_json(path)
            yield (
                path.parent.relative_to(checkpoints).as_posix(),
                f"LoRA of rank {told['r']} for {told['base_model_name_or_path']}",
            )
        except (CheckpointError, KeyError) as error:
            yield path.parent.relative_to(checkpoints).as_posix(), f"cannot be read: {error}"


def configs() -> Iterator[Line]:
    """With the first line of each file."""
    for path in sorted((resources.share_dir() / "config").glob("*.yaml")):
        with path.open(encoding="utf-8") as text:
            yield path.stem, text.readline().lstrip("# ").rstrip()


def types() -> Iterator[Line]:
    """The values of a checkpoint's `type`: ours, and those of installed packages."""
    from auras_ros.policies.families import ENTRY_POINTS, FAMILIES

    for name, family in FAMILIES.items():
        yield name, (sys.modules[type(family).__module__].__doc__ or "").partition("\n")[0].rstrip(".")
    yield from _of_packages(ENTRY_POINTS)


def simulators() -> Iterator[Line]:
    """The values of `--sim`: ours, and those of installed packages."""
    from auras_ros.sim.worlds import ENTRY_POINTS, SIMS

    for name, sim in SIMS.items():
        yield name, sim.summary + (f": {name}:TASK (auras list tasks)" if sim.world.tasks() else "")
    yield from _of_packages(ENTRY_POINTS)


def tasks() -> Iterator[Line]:
    """The values of `--sim` that name a task of a family of simulators."""
    from auras_ros.sim.worlds import SIMS

    for name, sim in SIMS.items():
        for task in sim.world.tasks():
            channels = ", ".join(each.name for each in sim.given(task=task).world.channels)
            yield f"{name}:{task}", f"actions {channels}"


def _of_packages(group: str) -> Iterator[Line]:
    for other in registered(group):
        yield other.name, f"from another package: {other.value}"


def architectures() -> Iterator[Line]:
    """The values of `--policy` of benches."""
    from auras_ros.bench.policies import names

    for name in names():
        yield name, "random weights"


SECTIONS: dict[str, Callable[[], Iterable[Line]]] = {
    "checkpoints": checkpoints,
    "models": models,
    "adapters": adapters,
    "configs": configs,
    "simulators": simulators,
    "tasks": tasks,
    "types": types,
    "architectures": architectures,
    "benches": BENCHES.items,
}


def run(argv: list[str]) -> int:
    parser = command_parser("list", __doc__, EXAMPLE)
    parser.add_argument("what", nargs="*", metavar="WHAT", help=f"of {', '.join(SECTIONS)} (default: all)")
    options = parser.parse_args(argv)
    for name in options.what:
        if name not in SECTIONS:
            parser.error(f"no '{name}'{hint(name, SECTIONS, show_all=True)}")
    for name in options.what or SECTIONS:
        found = list(SECTIONS[name]())
        width = max((len(each) for each, _ in found), default=0)
        print("\n".join([f"{name}:", *(f"  {each:{width}}  {text}".rstrip() for each, text in found)]))
    return 0
