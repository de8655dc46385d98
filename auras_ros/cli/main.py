"""Entry point of `auras`: picks the command, turns named errors into one line and an exit status.

Exit status: 0 done; 1 it went wrong; 2 the command or its settings cannot work as given; 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys

from auras_ros import __version__

COMMANDS = {
    "run": "start the nodes of a config and keep them alive: auras run config/pusht.yaml",
    "check": "whether a config says what was meant, and what may be said in it: auras check my_robot.yaml",
    "demo": "the whole closed loop on Push-T for a minute, with a summary, a video and a timeline",
    "list": "what is here to be named: checkpoints and their plans, configs, simulators, policies, benches",
    "sim": "only the simulator's bridge, for your own agent or controller",
    "eval": "compare schedules by success rate: auras eval --sim pusht-drift --plan ddpm100,pp_generation=8",
    "tune": "find the plan that meets a rate, a success and an age: auras tune --rate 2x --success seq-0.03",
    "train": "make demonstrations, train and evaluate a policy: auras train pusht",
    "convert": "another library's checkpoint in our format: auras convert FOLDER --out my_policy",
    "bench": "measure this machine: auras bench pipeline",
    "soak": "break the live loop at random and judge what it publishes: auras soak --minutes 20",
    "trace": "show where the stages of a plan ran: auras trace --out out/trace",
    "doctor": "say what was found here (ROS 2 or DDS, GPU, scheduling, checkpoints) and what to do about it",
}
EPILOG = """
first steps
  auras doctor                      what this machine has
  auras demo                        a trained policy drives Push-T through real ROS 2 topics
  auras run config/pusht.yaml       the same nodes, until you press Ctrl-C
  auras COMMAND --help              each command's options and an example
"""


def usage() -> str:
    lines = [
        f"auras {__version__}: real-time inference for robot policies on ROS 2",
        "",
        "usage: auras COMMAND ...",
        "",
    ]
    lines += [f"  {name:8} {text}" for name, text in COMMANDS.items()]
    return "\n".join(lines) + "\n" + EPILOG


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
        print(f"error: no command '{command}'; there is {', '.join(COMMANDS)} (auras --help)", file=sys.stderr)
        return 2
    try:
        return int(importlib.import_module(f"auras_ros.cli.{command}").run(rest))
    except ModuleNotFoundError as error:  # also from an import that the command makes when it runs
        package = (error.name or "").partition(".")[0]
        if package in ("", "auras_ros"):
            raise
        print(f"error: 'auras {command}' needs the package '{package}': {_remedy(package)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (OSError, ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _remedy(package: str) -> str:
    simulator = ("gym_pusht", "gymnasium", "pymunk", "pygame", "shapely")
    extra = {**dict.fromkeys(simulator, "sim"), "matplotlib": "plot", "optuna": "tune", "accelerate": "offload"}.get(
        package
    )
    name = {"yaml": "pyyaml", "cv2": "opencv-python"}.get(package, package)
    return f"pip install 'auras_ros[{extra}]'" if extra else f"pip install {name}"


if __name__ == "__main__":
    sys.exit(main())
