"""What a search says of the time that is left.

Guards: an estimate that is made up before anything was measured; episodes that are done and still counted.
"""

from __future__ import annotations

from auras_ros.evaluate.tuner.pace import PLAY, TIME, Pace

QUICK, MANY = ("pusht", "quick"), ("pusht", "ddpm100")


def test_nothing_is_said_while_there_is_nothing_to_go_by() -> None:
    pace = Pace()
    pace.ahead[PLAY, QUICK] = 10
    pace.ahead[TIME, QUICK] = 2
    assert pace.left((PLAY, QUICK)) == ""
    pace.took((TIME, QUICK), 1, 4.0)
    assert pace.left((PLAY, QUICK)) == ""  # episodes are not plans
    assert pace.left((PLAY, QUICK), 2.0, 6.0) == ", about 28 s left"  # a plan of 4 s, 8 episodes of 3


def test_each_generation_plan_has_its_own_pace_and_an_unknown_one_that_of_the_others() -> None:
    pace = Pace()
    pace.ahead[PLAY, QUICK] = 10
    pace.took((PLAY, QUICK), 4, 8.0)
    assert pace.left((PLAY, QUICK)) == ", about 12 s left"
    pace.ahead[PLAY, MANY] = 3
    assert pace.left((PLAY, QUICK)) == ", about 18 s left"
    pace.took((PLAY, MANY), 1, 100.0)
    assert pace.left((PLAY, QUICK)) == ", about 4 min left"
