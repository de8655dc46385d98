"""Entry point of `auras`: runs the command, and turns errors into one line and an exit status.

Exit status: 0 done; 1 failed; 2 the command or its settings are invalid; 130 interrupted, or
episodes were lost with their world; 141 nobody reads the output any more.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from auras_ros import __version__
from auras_ros.panics import is_panic, panic_text
from auras_ros.spelling import hint

COMMANDS = {
    "run": "start the nodes of a config and keep them alive: auras run config/pusht.yaml",
    "button": "an emergency stop for a robot: a keyboard, a gamepad, or a GPIO pin: auras button",
    "security": "the SROS 2 policy file of a config's nodes: auras security config/pusht.yaml",
    "check": "check a config for mistakes, or print all parameters: auras check my_robot.yaml",
    "demo": "the complete closed loop on Push-T or another world, sequential and as auras: summary, video, timeline",
    "list": "the names that commands accept: checkpoints, models, adapters, configs, simulators, benches",
    "serve": "an OpenAI-compatible server of a vision-language model: auras serve pusht-vlm",
    "sim": "only the simulator's bridge, for your own agent or controller",
    "eval": "compare modes by success rate: auras eval --sim pusht-drift --plan ddpm100,pp_generation=8",
    "tune": "find a plan with the required rate, success and age: auras tune --rate 2x --success seq-0.03",
    "train": "make demonstrations, train and evaluate a policy: auras train pusht",
    "convert": "convert another library's checkpoint to our format: auras convert FOLDER --out my_policy",
    "bench": "measure this machine: auras bench pipeline",
    "soak": "break the live loop at random and check what it publishes: auras soak --minutes 20",
    "trace": "show where the stages of a plan ran: auras trace --out out/trace",
    "doctor": "check this machine (ROS 2 or DDS, GPU, scheduling, checkpoints) and print what to do about problems",
}
CLOSED_PIPE = 141  # as a shell reports a program that SIGPIPE has ended
NOT_ON_PYPI = "simpler_env"  # somebody else may have the name there
EPILOG = """
first steps
  auras doctor                      what this machine has
  auras demo                        a trained policy drives Push-T over real ROS 2 topics
  auras run config/pusht.yaml       the same nodes, until you press Ctrl-C
  auras COMMAND --help              each command's options and an example
"""


def usage() -> str:
    commands = "\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items())
    title = f"auras {__version__}: real-time inference for robot policies on ROS 2"
    return f"{title}\n\nusage: auras COMMAND ...\n\n{commands}\n{EPILOG}"


@contextmanager
def closed_pipe_ends() -> Iterator[None]:
    """A pipe that nobody reads any more ends the process: `auras list | head -1`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter fails when it flushes
        sys.exit(CLOSED_PIPE)


@closed_pipe_ends()
def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        print(f"error: no command '{command}'{hint(command, COMMANDS, show_all=True)} (auras --help)", file=sys.stderr)
        return 2
    try:
        return int(importlib.import_module(f"auras_ros.cli.{command}").run(rest))
    except ModuleNotFoundError as error:  # also from a late import of the command
        package = (error.name or "").partition(".")[0]
        if package in ("", "auras_ros"):
            raise
        needs = f"'auras {command}' needs the package '{package}'"
        what = f"{error}; make its environment" if package == NOT_ON_PYPI else needs
        print(f"error: {what}: {remedy_for(package)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseException as error:
        if not is_panic(error):
            raise
        print(f"error: {panic_text(error)}", file=sys.stderr)
        return 2


def remedy_for(package: str) -> str:
    """The command that installs a package that is missing, or lines of commands."""
    if package == NOT_ON_PYPI:
        from auras_ros.environments import SIMPLER

        return SIMPLER.remedy(SIMPLER.name)
    simulator = ("gym_pusht", "gymnasium", "pymunk", "pygame", "shapely")
    server = ("fastapi", "starlette", "pydantic", "uvicorn")
    extras = {**dict.fromkeys(simulator, "sim"), **dict.fromkeys(server, "serve")}
    extras |= {"matplotlib": "plot", "optuna": "tune", "accelerate": "offload", "jinja2": "vlm"}
    extra = extras.get(package)
    names = {"yaml": "pyyaml", "cv2": "opencv-python", "mujoco": "'gymnasium[mujoco]'", "Box2D": "'gymnasium[box2d]'"}
    name = names.get(package, package)
    return f"pip install 'auras_ros[{extra}]'" if extra else f"pip install {name}"


if __name__ == "__main__":
    sys.exit(main())
