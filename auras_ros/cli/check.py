"""`auras check FILE`: whether a config says what was meant; without a file, every parameter of every node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from auras_ros.cli.run import config_path
from auras_ros.nodes.common import reference
from auras_ros.nodes.common.config import SUPERVISOR, ConfigError, read_parameters_file

EXAMPLE = """
example
  auras check my_robot.yaml          unknown names, wrong types, values out of their range: status 2 and a line for each
  auras check                        every parameter: meaning, range, default
  auras check --parameters actuator  those of one node

Nothing is started and no checkpoint is read. `auras run` and the launch files check the same way before they start.
"""


def run(argv: list[str]) -> int:
    """0, or 2 where a file must not be started."""
    parser = argparse.ArgumentParser(
        prog="auras check", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="parameter files, or names of those that ship")
    parser.add_argument(
        "--parameters", nargs="?", const="", choices=["", *reference.NODES], metavar="NODE",
        help=f"print what may be set, of all nodes or of one: {', '.join(reference.NODES)}",
    )  # fmt: skip
    parser.add_argument("--markdown", action="store_true", help="print it as docs/parameters.md has it")
    options = parser.parse_args(argv)
    bad = [name for name in options.files if not _good(name)]
    if options.markdown:
        print(reference.page(), end="")
    elif options.parameters is not None or not options.files:
        print(reference.text([options.parameters] if options.parameters else reference.NODES))
    return 2 if bad else 0


def _good(name: str) -> bool:
    """Look at one file and say what was found."""
    try:
        path = config_path(name)
        config = read_parameters_file(path)
    except (ConfigError, OSError) as error:
        say_errors(error)
        return False
    say_warnings(config.warnings)
    if not config.supervision.processes:
        say_warnings([f"{path}: no {SUPERVISOR} section: for `ros2 run` alone, `auras run` cannot start it"])
    count = sum(len(values) for values in config.sections.values())
    print(f"{path}: {count} parameters of {', '.join(config.sections) or 'no node'}, as they should be")
    return True


def say_errors(error: Exception) -> None:
    """A line for each thing that is wrong."""
    for line in str(error).splitlines():
        print(f"error: {line}", file=sys.stderr, flush=True)


def say_warnings(warnings: Iterable[str]) -> None:
    for line in warnings:
        print(f"warning: {line}", file=sys.stderr, flush=True)
