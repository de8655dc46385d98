"""`auras soak`: the live loop under random faults, or a server under all kinds of requests at once; exit status 1 if a
promise was broken."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from auras_ros.cli.command import INTERRUPTED, command_parser, stop_signals
from auras_ros.cli.outputs import check_outputs, make_folder, written
from auras_ros.cli.progress import Progress
from auras_ros.live.soak.not_drawn import NOT_DRAWN
from auras_ros.spelling import hint

OWN: dict[str, dict[str, Any]] = {  # options of some targets, with their defaults
    "loop": {"minutes": 20.0, "presses": 0, "load": 0},
    "wire": {"minutes": 0.0, "presses": 50, "load": 0, "unsigned": False},
    "vlm": {"requests": 2000, "model": "pusht-vlm", "kv_mib": 1, "replicas": 1},
}
EXAMPLE = """
examples
  auras soak --minutes 20                          every kind of fault, in an order that follows from seed 0
  auras soak --minutes 6 --only agent_killed       only one kind, or several separated by commas
  auras soak --only stop_pressed --presses 100     short presses of the emergency stop, each must be latched
  auras soak --load 8                              20 minutes beside eight busy loops: no process may end or disarm
  auras soak --minutes 2 --seed 7 --json soak.json
  auras soak --target wire                         forged packets against a required emergency stop, 50 presses each
  auras soak --target wire --minutes 20 --load 8   no attack: does a required button stop the robot without a press?
  auras soak --target vlm                          2,000 requests to `auras serve`, then ten times what it can answer
  auras soak --target vlm --only headers,long_url  attacks on `auras serve`, one after another; together: all at once

Simulator, actuator and agent run in separate processes. They are killed, stopped, slowed down, deactivated, and sent
garbage, noise, malformed images and prompts; clocks go back, QoS does not match, other nodes publish, and a second
agent, actuator, camera and emergency stop appear. Separate actuators are tested with joint states split over two
drivers, with stalls and with a full disk. After each fault the actuator is armed again. What is published meanwhile is
checked: no command beyond its limits, none while disarmed, none from an observation that is too old, every hold within
the promised time, and valid messages are used in spite of the bad ones. ROS stays on this host, whatever the
environment. Ctrl-C ends it with the results so far.

With --target vlm the target is a server of the shipped vision-language model, in a process of its own over loopback.
Texts and images, chat and completions, streamed and whole, greedy and sampled, with stops and grammars come mixed with
deadlines, clients that go and hostile requests. Every answer must be the one that the request got alone, everything
hostile is refused with what is wrong, and nothing is left when all has ended: docs/reliability.md. With --only it is
attacked instead: the server on one core, all clients on another one, and what others notice of it is measured.

faults that are not injected, and why (tests: docs/reliability.md)
""" + "\n".join(f"  {name:<{max(map(len, NOT_DRAWN))}}  {why}" for name, why in NOT_DRAWN.items())


def run(argv: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    own = OWN[options.target]
    for name in sorted({name for names in OWN.values() for name in names}):
        if name in own:
            setattr(options, name, own[name] if (given := getattr(options, name)) is None else given)
        elif getattr(options, name) is not None:
            targets = " or ".join(target for target, names in OWN.items() if name in names)
            parser.error(f"--{name.replace('_', '-')}: only with --target {targets}")
    return {"loop": _loop, "wire": _wire, "vlm": _vlm}[options.target](parser, options)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("soak", __doc__, EXAMPLE)
    parser.add_argument("--target", choices=list(OWN), default="loop", help="what is asked to break (loop)")
    parser.add_argument("--minutes", type=float, help="no fault begins later than this (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of order, pauses and garbage (default 0)")
    text = "kinds of faults, by their names in the table; with --target vlm: attacks on the server"
    parser.add_argument("--only", metavar="KIND,...", default="", help=text)
    parser.add_argument(
        "--presses", type=int, metavar="N",
        help="with --only stop_pressed: N presses of every case, however long they take",
    )  # fmt: skip
    parser.add_argument("--load", type=int, metavar="N", help="N busy loops beside it, and no other fault")
    parser.add_argument(
        "--unsigned", action="store_true", default=None, help="of --target wire: button and actuator share no key"
    )
    text = "of --target vlm (default 2000); ten times the load takes a second for each hundred of them"
    parser.add_argument("--requests", type=int, metavar="N", help=text)
    parser.add_argument("--model", help="of --target vlm: one that ships, or a folder (pusht-vlm)")
    parser.add_argument(
        "--kv-mib", type=int, metavar="N", help="of --target vlm: the server's blocks; few, so that they run out (1)"
    )
    parser.add_argument("--replicas", type=int, metavar="N", help="of --target vlm: 1 or 2, of the server's engine (1)")
    parser.add_argument("--log", type=Path, default=Path("out/soak.log"), help="log of the processes (out/soak.log)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    return parser


def _loop(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if not 0 < options.minutes <= 10_000:
        parser.error(f"--minutes: must be in (0, 10000], got {options.minutes:g}")
    from auras_ros.live.soak.faults import faults
    from auras_ros.live.soak.run import SoakSettings, soak
    from auras_ros.live.soak.summary import report, table

    known = faults(1.0, 1.0)
    only = _only(parser, options, "fault", known)
    if options.presses and (options.presses < 0 or only != ["stop_pressed"]):
        parser.error(f"--presses: must be above 0, and only with --only stop_pressed; got {options.presses}")
    if not 0 <= options.load <= 64 or (options.load and (only or options.presses)):
        parser.error(f"--load: must be 1 to 64, without --only and --presses; got {options.load}")
    make_folder(parser, "--log", options.log.parent)
    check_outputs(parser, {"--json": options.json})
    settings = SoakSettings(60.0 * options.minutes, options.seed, tuple(only), options.presses, options.load)
    with stop_signals() as stopping, Progress(quiet_s=5.0) as progress:
        result = soak(settings, options.log, lambda: bool(stopping), progress.say)
    made = report(result, interrupted=bool(stopping))
    print(f"\n{table(made)}\nlog: {options.log}", flush=True)
    if options.json:
        written(options.json, made.write)
    if result.judge.kinds:
        return 1
    return INTERRUPTED if stopping else 0


def _only(parser: argparse.ArgumentParser, options: argparse.Namespace, noun: str, known: Collection[str]) -> list[str]:
    """The names in --only; ends with an error for one that is not known."""
    names = [name for name in options.only.replace(" ", "").split(",") if name]
    for name in names:
        if name not in known:
            parser.error(f"--only: no {noun} '{name}'{hint(name, known, show_all=True)}")
    return names


def _wire(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from auras_ros.live.soak_wire.attacks import CASES
    from auras_ros.live.soak_wire.run import WireSettings, soak_wire
    from auras_ros.live.soak_wire.summary import wire_report, wire_table

    if not 0 <= options.minutes <= 10_000:
        parser.error(f"--minutes: must be in [0, 10000], got {options.minutes:g}")
    if options.presses < 1:
        parser.error(f"--presses: must be at least 1, got {options.presses}")
    if not 0 <= options.load <= 64 or (options.load and not options.minutes):
        parser.error(f"--load: must be 1 to 64, and with --minutes; got {options.load}")
    only = _only(parser, options, "attack", [case.name.replace(" ", "_") for case in CASES])
    make_folder(parser, "--log", options.log.parent)
    check_outputs(parser, {"--json": options.json})
    settings = WireSettings(
        options.presses, 60.0 * options.minutes, options.load, not options.unsigned, options.seed, tuple(only)
    )
    with stop_signals() as stopping, Progress(quiet_s=5.0) as progress:
        result = soak_wire(settings, options.log, lambda: bool(stopping), progress.say)
    print(f"\n{wire_table(result)}\nlog: {options.log}", flush=True)
    if options.json:
        written(options.json, wire_report(result, interrupted=bool(stopping)).write)
    if result.judge.kinds:
        return 1
    return INTERRUPTED if stopping else 0


def _vlm(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if not 1 <= options.requests <= 1_000_000:
        parser.error(f"--requests: must be 1 to 1000000, got {options.requests}")
    if options.replicas not in (1, 2):
        parser.error(f"--replicas: must be 1 or 2, got {options.replicas}")
    from auras_ros.live.soak_vlm.attacks.known import ATTACKS
    from auras_ros.live.soak_vlm.mix import VlmSoakSettings
    from auras_ros.live.soak_vlm.run import soak_vlm
    from auras_ros.live.soak_vlm.summary import vlm_report, vlm_table
    from auras_ros.live.soak_vlm.under_attack import TOGETHER
    from auras_ros.resources import checkpoint

    only = _only(parser, options, "attack", [*ATTACKS, TOGETHER])
    model = checkpoint(options.model)
    make_folder(parser, "--log", options.log.parent)
    check_outputs(parser, {"--json": options.json})
    if only:
        return _attacks(options, model, only)
    overload_s = min(max(options.requests / 100, 4.0), 60.0)
    settings = VlmSoakSettings(
        options.requests, options.seed, overload_s=overload_s, grammar=find_spec("llguidance") is not None
    )
    with stop_signals() as stopping, Progress(quiet_s=5.0) as progress:
        result = soak_vlm(
            model, options.kv_mib, options.replicas, settings, options.log, progress.say, partial(bool, stopping)
        )
    made = vlm_report(result, interrupted=bool(stopping))
    print(f"\n{vlm_table(made)}\nlog: {options.log}", flush=True)
    if options.json:
        written(options.json, made.write)
    if result.broken.kinds:
        return 1
    return INTERRUPTED if stopping else 0


def _attacks(options: argparse.Namespace, model: Path, names: list[str]) -> int:
    from auras_ros.live.soak_vlm.attack_summary import attack_report, attack_table
    from auras_ros.live.soak_vlm.under_attack import AttackSettings, attack_server

    words = ("--kv-mib", str(options.kv_mib), "--replicas", str(options.replicas))
    settings = AttackSettings(tuple(names), options=words)
    with stop_signals() as stopping, Progress(quiet_s=5.0) as progress:
        results, broken = attack_server(model, settings, options.log, progress.say, partial(bool, stopping))
    report = attack_report(results, broken, interrupted=bool(stopping))
    print(f"\n{attack_table(report)}\nlog: {options.log}", flush=True)
    if options.json:
        written(options.json, report.write)
    if broken.kinds:
        return 1
    return INTERRUPTED if stopping else 0
