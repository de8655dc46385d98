"""The worlds that a name stands for: `pusht-drift`, or with options of one's own `pusht:drift_px=0.7`.

Worlds of other packages are entry points. No simulator is imported before a world is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import yaml

from auras_ros import registry
from auras_ros.environments import ROBOMIMIC, ROBOSUITE, SIMPLER
from auras_ros.parameters import checked, unknown
from auras_ros.sim.gym.world import GymOptions, GymWorld
from auras_ros.sim.pusht.world import DRIFT_SUCCESS_COVERAGE, PushTOptions, PushTWorld
from auras_ros.sim.robosuite.lift import MOVING_TABLE_M_S, LiftOptions, LiftWorld
from auras_ros.sim.robosuite.robomimic import RobomimicOptions, RobomimicWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld, ToolHangWorld, TransportWorld
from auras_ros.sim.robosuite.world import RobosuiteOptions
from auras_ros.sim.simpler.world import SimplerOptions, SimplerWorld
from auras_ros.sim.world import Sim

ENTRY_POINTS = "auras_ros.worlds"  # group of other packages' worlds: name = module:Sim
TASK = "task"  # the option of a family of worlds: `simpler:widowx_stack_cube` is `simpler:task=widowx_stack_cube`

LIFT = LiftOptions(absolute=True, turns=False)  # as the shipped policy acts: positions, the gripper pointing down

SIMS: Mapping[str, Sim] = {
    "pusht": Sim("Push-T: a disc pushes a tee onto its outline", PushTWorld, PushTOptions()),
    "pusht-drift": Sim(
        "Push-T with a tee that moves by itself, 5 px/s",
        PushTWorld,
        PushTOptions(drift_px=0.5, success_coverage=DRIFT_SUCCESS_COVERAGE),
    ),
    "pusht-jump": Sim("Push-T with a tee that jumps once by 100 px", PushTWorld, PushTOptions(jump_px=100.0)),
    "lift": Sim("robosuite Lift: a cube to lift", LiftWorld, LIFT, ROBOSUITE),
    "lift-moving": Sim(
        "Lift on a table that moves, 0.2 m/s", LiftWorld, replace(LIFT, table_m_s=MOVING_TABLE_M_S), ROBOSUITE
    ),
    "lift-jump": Sim("Lift with a cube that jumps once by 0.08 m", LiftWorld, replace(LIFT, jump_m=0.08), ROBOSUITE),
    "can": Sim("robosuite PickPlaceCan: a can to put into its bin", CanWorld, RobosuiteOptions(), ROBOSUITE),
    "square": Sim("robosuite NutAssemblySquare: a nut to put onto a peg", SquareWorld, RobosuiteOptions(), ROBOSUITE),
    "tool_hang": Sim(
        "robosuite ToolHang: a frame to assemble, a tool to hang", ToolHangWorld, RobosuiteOptions(), ROBOSUITE
    ),
    "transport": Sim(
        "robosuite TwoArmTransport: two arms, a hammer to hand over",
        TransportWorld,
        RobosuiteOptions(cameras=4),
        ROBOSUITE,
    ),
    "robomimic": Sim(
        "a task of robosuite's by robomimic's metadata and EnvUtils", RobomimicWorld, RobomimicOptions(), ROBOMIMIC
    ),
    "simpler": Sim("SimplerEnv's tasks of the Google robot and WidowX", SimplerWorld, SimplerOptions(), SIMPLER),
    "gym": Sim("any Gymnasium environment that draws itself, by a file that describes it", GymWorld, GymOptions()),
}


def nodes() -> tuple[str, ...]:
    """The names of all worlds' nodes. Other packages register a world under the name of its node, its variants as
    name-variant."""
    ours = dict.fromkeys(sim.world.name for sim in SIMS.values())
    return (*ours, *(each.name for each in registry.registered(ENTRY_POINTS) if "-" not in each.name))


def find(text: str) -> Sim:
    """The world of this name, with the options after a colon. Raises ValueError by name."""
    name, _, given = text.partition(":")
    first, comma, others = name.partition(",")
    if comma:
        raise ValueError(f"sim '{text}': options follow a colon: {first}:{others}")
    sim = registry.find(ENTRY_POINTS, SIMS, "sim", name)
    return replace(sim.given(**_read(name, type(sim.options), given)), name=name)


def _read(name: str, options: type[Any], text: str) -> dict[str, Any]:
    """The values in `drift_px=0.7,success_coverage=0.9`. A first word without a value is that of `task`."""
    known = {each.name: each for each in fields(options)}
    first, *others = text.split(",")
    if TASK in known and first and "=" not in first:
        first = f"{TASK}={first}"
    values = {}
    for word in filter(None, [first, *others]):
        key, _, value = (part.strip() for part in word.partition("="))
        if key not in known:
            listed = f"no parameter '{key}'; known: {', '.join(known)}"
            raise ValueError(f"{name}: {unknown(options, key, 0.6) or listed}")
        if not value:
            raise ValueError(f"{name}: {key} needs a value: {key}=VALUE")
        values[key] = checked(name, known[key], _value(name, key, value))
    return values


def _value(name: str, key: str, text: str) -> Any:
    """A number, a truth value or a text, as YAML reads it. Raises ValueError by name."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{name}: {key}: {text!r:.80} is not a value: {' '.join(str(error).split())}") from error
