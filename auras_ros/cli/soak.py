"""`auras soak`: the live loop under random faults, checked on its topics; exit status 1 if a promise was broken."""

from __future__ import annotations

from pathlib import Path

from auras_ros.cli.command import INTERRUPTED, command_parser, stop_signals
from auras_ros.cli.outputs import check_outputs, make_folder, written
from auras_ros.cli.progress import Progress
from auras_ros.live.soak.not_drawn import NOT_DRAWN

EXAMPLE = """
examples
  auras soak --minutes 20                          every kind of fault, in an order that follows from seed 0
  auras soak --minutes 6 --only agent_killed       only one kind, or several separated by commas
  auras soak --only stop_pressed --presses 100     short presses of the emergency stop, each must be latched
  auras soak --load 8                              20 minutes beside eight busy loops: no process may end or disarm
  auras soak --minutes 2 --seed 7 --json soak.json

Simulator, actuator and agent run in separate processes. They are killed, stopped, slowed down, deactivated, and sent
garbage, noise, malformed images and prompts; clocks go back, QoS does not match, other nodes publish, and a second
agent, actuator, camera and emergency stop appear. Separate actuators are tested with joint states split over two
drivers, with stalls and with a full disk. After each fault the actuator is armed again. What is published meanwhile is
checked: no command beyond its limits, none while disarmed, none from an observation that is too old, every hold within
the promised time, and valid messages are used in spite of the bad ones. ROS stays on this host, whatever the
environment. Ctrl-C ends it with the results so far.

faults that are not injected, and why (tests: docs/reliability.md)
""" + "\n".join(f"  {name:<{max(map(len, NOT_DRAWN))}}  {why}" for name, why in NOT_DRAWN.items())


def run(argv: list[str]) -> int:
    parser = command_parser("soak", __doc__, EXAMPLE)
    parser.add_argument("--minutes", type=float, default=20.0, help="no fault begins later than this (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of order, pauses and garbage (default 0)")
    parser.add_argument("--only", default="", metavar="KIND,...", help="kinds of faults, by their names in the table")
    parser.add_argument(
        "--presses", type=int, default=0, metavar="N",
        help="with --only stop_pressed: N presses of every case, however long they take",
    )  # fmt: skip
    parser.add_argument("--load", type=int, default=0, metavar="N", help="N busy loops beside it, and no other fault")
    parser.add_argument("--log", type=Path, default=Path("out/soak.log"), help="log of the nodes (out/soak.log)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    options = parser.parse_args(argv)
    if not 0 < options.minutes <= 10_000:
        parser.error(f"--minutes: must be in (0, 10000], got {options.minutes:g}")
    from auras_ros.live.soak.faults import faults
    from auras_ros.live.soak.run import SoakSettings, soak
    from auras_ros.live.soak.summary import report, table

    only, known = [word for word in options.only.replace(" ", "").split(",") if word], faults(1.0, 1.0)
    for word in only:
        if word not in known:
            parser.error(f"--only: no fault '{word}'; known: {', '.join(known)}")
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
