"""`auras check FILE`: check a config for mistakes; without a file, print every parameter of every node."""

from __future__ import annotations

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings
from auras_ros.cli.named_checkpoints import problems_with, warnings_about
from auras_ros.cli.used_topics import topic_lines
from auras_ros.nodes.common import reference
from auras_ros.nodes.common.config import SUPERVISOR, ConfigError, read_parameters_file
from auras_ros.parameters import ParameterError

EXAMPLE = """
example
  auras check my_robot.yaml          unknown names, wrong types, values out of range: status 2 and a line for each
  auras check                        every parameter: meaning, range, default
  auras check --parameters actuator  the parameters of one node

Nothing is started, and no weights are read: of a checkpoint only its manifest, for cameras and plans. Beside the
result, the topics are printed that the nodes will use. `auras run` and the launch files check names, types and ranges
the same way before they start; the nodes say what is wrong with a checkpoint.
"""


def run(argv: list[str]) -> int:
    """Returns 0, or 2 if a file is invalid."""
    parser = command_parser("check", __doc__, EXAMPLE)
    parser.add_argument("files", nargs="*", metavar="FILE", help="parameter files, or names of shipped ones")
    parser.add_argument(
        "--parameters", nargs="?", const="", choices=["", *reference.NODES], metavar="NODE",
        help=f"print all parameters, of all nodes or of one: {', '.join(reference.NODES)}",
    )  # fmt: skip
    parser.add_argument("--markdown", action="store_true", help="print the page docs/parameters.md")
    options = parser.parse_args(argv)
    bad = [name for name in options.files if not _good(name)]
    if options.markdown:
        print(reference.page(), end="")
    elif options.parameters is not None or not options.files:
        print(reference.text([options.parameters] if options.parameters else reference.NODES))
    return 2 if bad else 0


def _good(name: str) -> bool:
    """Check one file and print the result."""
    try:
        path = resources.config(name)
        config = read_parameters_file(path)
        topics = topic_lines(config)
        problems = problems_with(config)
    except (ConfigError, ParameterError, OSError) as error:
        print_errors(error)
        return False
    print_warnings([*config.warnings, *warnings_about(config)])
    if problems:
        print_errors(ConfigError("\n".join(f"{path}: {problem}" for problem in problems)))
        return False
    if not config.supervision.processes:
        print_warnings([f"{path}: no {SUPERVISOR} section: only for `ros2 run`, `auras run` cannot start it"])
    count = sum(len(values) for values in config.sections.values())
    print(f"{path}: {count} parameters of {', '.join(config.sections) or 'no node'}, all valid")
    for line in topics:
        print(line)
    return True
