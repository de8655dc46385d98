"""Ratios within each round, and rates that something else had a part in."""

from __future__ import annotations

from auras_ros.measure.compare import disturbed, ratio
from auras_ros.measure.forms import Variant, control_of
from auras_ros.pipeline.plan import Plan
from tests.measure.fakes import SIZES


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that is slow for a while is slow for both: here auras is exactly twice as quick throughout."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    assert ratio({seq: [1.0, 5.0, 2.0], auras: [2.0, 10.0, 4.0]}, auras, seq) == (2.0, 2.0, 2.0)


def test_what_something_else_had_a_part_in_is_said() -> None:
    """par of one worker does the work of seq: that it was quicker by 12 % was the machine's doing."""
    seq, auras = Variant(Plan("ddpm16")), Variant(SIZES.auras(8))
    control, quiet = control_of(seq), [4.0, 4.1, 4.0, 3.9]
    assert disturbed({seq: quiet, control: quiet, auras: quiet}, seq) == {}
    said = disturbed({seq: quiet, control: [1.12 * rate for rate in quiet], auras: quiet}, seq)
    assert said == dict.fromkeys((seq, control), "par with one worker (the same work) is 12% faster than seq")
    said = disturbed({seq: quiet, control: quiet, auras: [8.0, 4.0, 8.0, 4.0]}, seq)
    assert said == {auras: "auras, stages 8: windows of the same plan differ by 67% (quartiles)"}
    assert disturbed({auras: [8.0, 4.0]}, seq) == {}  # two windows say nothing
