"""`auras bench seams`: the jumps of the commands at the seams between chunks, and the success, under injected latency,
for each way of joining chunks.

Push-T in lockstep with the trained policy. A request is charged a given latency, in virtual time, so nothing here
depends on the machine. In seq a frame is a request; in auras a request takes L frames, and each frame is charged 1/L of
the latency. The actuator ticks at --rate-hz as it does live, and the simulator takes the command of the tick at which
its step of 100 ms begins. The policy's limits apply: a jump is never larger than its max_rate allows in one tick, and
`limited` is the share of seams at which a limit changed the command. The disagreement is measured before joining and
limits: the difference between the new chunk and the one before, both at the tick of the seam.

switch takes the new chunk as it is. blend fades over so many ms, ensemble averages all chunks that cover a tick.
inpaint and rtc make the new chunk continue the one before (the plan's `guide`), and then switch: there the jump is 0
by construction, so compare the largest step anywhere. Every way plays every episode, on the same seeds. With --jitter
all ways also meet the same latencies, which then differ from the expected ones. With --work an interrupted run can be
continued.
"""

from __future__ import annotations

import argparse

from auras_ros.action import DEFAULT_ENSEMBLE_DECAY, ContractError
from auras_ros.bench.figures.played import add_play_options
from auras_ros.bench.options import listed
from auras_ros.bench.seams.game import SeamCampaign
from auras_ros.bench.seams.show import draw, table
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.evaluate.settings import SettingsError
from auras_ros.pipeline.plan import PlanError
from auras_ros.report.result import Report, Say, key

__all__ = ["draw", "run", "table"]
FIGURES = ("success", "jump_max_px", "jump_p99_px", "step_max_px", "disagreement_max_px", "disagreement_p99_px")
LATENCIES_MS = [0.0, 100.0, 200.0, 400.0]
EXAMPLE = """
examples
  auras bench seams --work seams.json --json seams-report.json --picture seams.png
  auras bench seams --episodes 4 --latency-ms 200 --join switch,blend-50    a first look
  auras bench seams --plan ddpm100,pp_generation=4 --mode seq,auras --jitter 0.5
"""


def run(argv: list[str], progress: Say) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        game = SeamCampaign(options, progress)
    except (CheckpointError, ContractError, PlanError, SettingsError) as error:
        parser.error(str(error))
    report = Report("seams", more={"title": game.named()})
    game.run(report)
    report.rows = game.rows()
    for row in report.rows:
        which = key(f"{row['mode']}_{row['latency_ms']:g}_{row['join']}")
        for figure in FIGURES:
            if row[figure] is not None:
                report.summary[f"{figure}_{which}"] = row[figure]
    return report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="auras bench seams",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_play_options(parser, "ddpm100,frame_period_ms=400")
    parser.add_argument("--mode", type=listed(str), default=["seq"], help="seq, auras (back to back), or both (seq)")
    parser.add_argument("--latency-ms", type=listed(float), default=LATENCIES_MS, help="of a request (0,100,200,400)")
    parser.add_argument("--jitter", type=float, default=0.0, help="share by which a frame's latency varies (0)")
    parser.add_argument("--join", type=listed(str), help="the ways of joining to play, by name (all)")
    parser.add_argument("--blend-ms", type=listed(float), default=[50.0, 200.0], help="lengths of a blend (50,200)")
    parser.add_argument("--ensemble-decay", type=float, default=DEFAULT_ENSEMBLE_DECAY, help="as the actuator's (0.01)")
    parser.add_argument("--rate-hz", type=float, default=100.0, help="ticks of the actuator per second (100)")
    return parser
