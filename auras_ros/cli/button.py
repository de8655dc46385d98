"""`auras button`: an emergency stop for a robot. It repeats its state, and presses when it ends."""

from __future__ import annotations

import sys
from dataclasses import fields

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors
from auras_ros.nodes.button.settings import ButtonSettings
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import ConfigError, bridge_alone, read_parameters_file
from auras_ros.nodes.common.stop_signature import write_new_key

EXAMPLE = """
examples
  auras button                                  in a terminal: any key presses, r releases
  auras button --config my_robot.yaml           the topic, the key file and the discovery range of a robot's config
  gpiomon ... | auras button --input lines      a pin: a program writes 1 (pressed) or 0, a line each
  auras button --input gamepad                  any button of the gamepad /dev/input/js0 presses
  auras button --new-key keys/stop.key          make a key for signed words, then end

A robot that requires it (require_emergency_stop: true) stops when the button is pressed, when it falls silent, and when
it ends. To drive again: release the button, then the services ~/release_stop, ~/disarm and ~/arm of the actuator.
"""


def run(argv: list[str]) -> int:
    parser = command_parser("button", __doc__, EXAMPLE)
    parser.add_argument("--config", help="a robot's config, or the name of a shipped one")
    parser.add_argument("--new-key", metavar="FILE", help="write a random key to a new file with mode 0600, and end")
    for setting in fields(ButtonSettings):
        parser.add_argument(f"--{setting.name.replace('_', '-')}", help=setting.metadata["description"])
    options = parser.parse_args(argv)
    if options.new_key is not None:
        return _make_key(options.new_key)
    parameters = {each.name: value for each in fields(ButtonSettings) if (value := getattr(options, each.name))}
    try:
        parameters = _of_config(options.config) | parameters
    except (ConfigError, OSError) as error:
        print_errors(error)
        return 2
    from auras_ros.nodes.button.node import main

    arguments = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    return int(main(["button", "--ros-args", *arguments]))


def _make_key(path: str) -> int:
    try:
        write_new_key(path)
    except OSError as error:
        print(f"error: --new-key: {path}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"{path}: a new key; give the actuator and its buttons the same file as emergency_stop_key_file")
    return 0


def _of_config(name: str | None) -> dict[str, str]:
    """The button's parameters that a robot's config implies, as text; sets the discovery range. Raises ConfigError or
    OSError."""
    if name is None:
        discovery.apply_range(bridge_alone("pusht"))
        return {}
    config = read_parameters_file(resources.config(name))
    discovery.apply_range(config)
    actuator = config.section("actuator")
    parameters = {}
    topics = actuator.get("emergency_stops", ())
    if len(topics) > 1:
        raise ConfigError(f"{config.path}: emergency_stops names {len(topics)} topics: say which with --topic")
    if topics:
        parameters["topic"] = str(topics[0])
    if key_file := actuator.get("emergency_stop_key_file"):
        parameters["emergency_stop_key_file"] = str(key_file)
    return parameters | {name: str(value) for name, value in config.sections.get("button", {}).items()}
