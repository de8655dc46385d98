"""`auras convert SOURCE --out FOLDER`: convert another library's checkpoint to our format, with a golden sample."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from auras_ros.cli.command import command_parser

if TYPE_CHECKING:
    from auras_ros.policies.loaders.convert import Converted

METADATA = "env_metadata.json"  # robomimic's, as it was in the file

EXAMPLE = """
example
  auras convert lerobot/act_aloha --out checkpoints/aloha          robot.json is in the folder
  auras convert epoch=0100.ckpt --robot robot.json --out my_policy  nothing in the file is executed
  auras convert model_epoch_600.pth --out my_lift                   robomimic's: needs no robot.json for its own tasks
  auras convert bc_rnn.pth --inference robomimic --out my_rnn       robomimic itself plays it, in its own environment
  auras convert openvla --out my_openvla --images pictures          pictures/top.png, pictures/state.json
  auras convert my_lora --base smolvla_base --out my_smolvla        a LoRA adapter that LeRobot trained, and its base

robot.json has what the checkpoint lacks: docs/checkpoints.md
"""


def run(argv: list[str]) -> int:
    parser = command_parser("convert", __doc__, EXAMPLE)
    parser.add_argument(
        "source", type=Path, help="a LeRobot or OpenVLA folder, diffusion_policy's .ckpt, robomimic's .pth"
    )
    parser.add_argument("--robot", type=Path, help="robot.json (default: the one in SOURCE, or beside the file)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint; must not exist")
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FOLDER",
        help="for a LoRA adapter of LeRobot: the folder of the policy that it was trained on; both are merged",
    )
    parser.add_argument(
        "--images",
        type=Path,
        metavar="DIR",
        help="<camera>.png or .npy and state.json of the golden observation (default: smooth random ones)",
    )
    parser.add_argument(
        "--inference",
        choices=("auras", "robomimic"),
        default="auras",
        help="robomimic: its own code plays a .pth of its, as a process, for recurrent policies and whatever else our "
        "networks are not (auras doctor --sim robomimic --fix)",
    )
    options = parser.parse_args(argv)
    if not options.source.exists():
        parser.error(f"{options.source}: not found")
    for option, folder in (("--images", options.images), ("--base", options.base)):
        if folder is not None and not folder.is_dir():
            parser.error(f"{option}: {folder}: no such folder")
    from auras_ros import environments
    from auras_ros.checkpoints.manifest import ROBOT
    from auras_ros.policies.loaders.convert import convert
    from auras_ros.policies.loaders.lerobot import translate as read_lerobot
    from auras_ros.policies.loaders.open import ROBOMIMIC, translator
    from auras_ros.policies.loaders.robot import Robot

    of_robomimic = options.source.suffix == ROBOMIMIC
    if options.inference == "robomimic" and not of_robomimic:
        parser.error(f"--inference robomimic: is for robomimic's {ROBOMIMIC} alone")
    read = translator(options.source)  # first check the source itself, then what it needs
    if options.base is not None:
        if read is not read_lerobot:
            parser.error("--base: is for LoRA adapters of LeRobot alone")
        read = partial(read_lerobot, base=options.base)
    if options.inference == "robomimic":
        from auras_ros.policies.loaders.robomimic_own import translate as read

        environments.ROBOMIMIC.python("robomimic")
    beside = options.source if options.source.is_dir() else options.source.parent
    given, sim, metadata = options.robot or beside / ROBOT, "", ""
    if of_robomimic:
        from auras_ros.cli.robomimic_robot import metadata_of, robot_of

        metadata = metadata_of(options.source)
    if of_robomimic and options.robot is None and not given.exists():
        robot, sim = robot_of(options.source)
    else:
        robot = Robot.load(given)
    made = convert(options.source, robot, options.out, options.images, read)
    _say(made, options.images)
    print(f"written and loaded for a check: {options.out}")
    played = f"--checkpoint {options.out}"
    if made.checkpoint.horizon == 1:  # nothing to compare modes by
        played += " --modes seq --clock paused"
    if metadata:
        (options.out / METADATA).write_text(metadata, encoding="utf-8")
        print(f"its task as robomimic makes it: auras eval --sim robomimic:metadata={options.out / METADATA} {played}")
    if sim:
        print(f"its own task: auras eval --sim {sim} {played}")
    return 0


def _say(made: Converted, images: Path | None) -> None:
    """What was read, and what the golden sample is of."""
    from auras_ros.policies.loaders.ranges import ranges

    checkpoint, plans = made.checkpoint, ", ".join(made.checkpoint.plans)
    print(f"read: {checkpoint.name}, {sum(p.numel() for p in checkpoint.networks.parameters()):,} parameters, {plans}")
    for note in made.notes:
        print(note)
    found = ranges(checkpoint)
    for each in found:
        print(each)
    if any(each.beyond for each in found):
        print("the training data exceed the limits: the actuator clips such actions, or refuses them if they exceed a")
        print("limit by more than its clip_tolerance; check the limits and the units")
    if made.observed:
        print(f"golden sample: from the pictures in {images}")
    else:
        print("golden sample: from random pictures and positions, not from a robot: use --images for real ones")
    if made.margin is not None:
        print(f"golden sample: every token wins by at least {made.margin:.3g} standard deviations of its scores")
