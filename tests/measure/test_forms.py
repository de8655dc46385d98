"""The forms that a plan is tried in."""

from __future__ import annotations

from auras_ros.measure.forms import default_concurrency, forms
from auras_ros.pipeline.plan import Plan
from tests.measure.fakes import SIZES


def test_no_form_has_more_threads_than_there_are_cores() -> None:
    """But for those of one thread each, which take turns: on one core nothing else is left."""
    par = [(v.plan.concurrency, v.threads) for v in SIZES.candidates()["par"]]
    assert par == [(1, 1), (1, 2), (2, 1), (3, 1)]
    beside, dec = Plan("ddpm16", "auras", fetch_offset=-1), Plan("ddpm16", "dec")
    assert [form.threads for form in forms(beside, (1, 2, 4), 4)] == [1, 2]
    assert [form.threads for form in forms(dec, (1, 2, 4), 4)] == [1, 2]
    assert [form.threads for form in forms(dec, (1,), 1)] == [1]


def test_par_has_more_workers_on_a_gpu() -> None:
    assert default_concurrency(2, cuda=False) == (1, 2, 3, 4)
    assert max(default_concurrency(2, cuda=True)) == 16
