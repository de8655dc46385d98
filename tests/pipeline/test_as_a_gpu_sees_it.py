"""A stage can be captured when it is asked for, and what it reads is kept by whoever made it: in every mode of every
family.

To capture a stage a GPU runs its body, at once. Its graph then holds addresses and no tensors: what only the body held
would be freed right after the capture, and the next tensor would come to lie there. A CPU runs nothing before the
launch, and its stage holds the body. Here it is as on a GPU. And its tensors lie elsewhere than the host's: torch's
`meta` tensors, of which no value can be read, stand for them.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from auras_ros.clock import MonotonicClock
from auras_ros.device import Lane, Mark, Stage
from auras_ros.device.cpu import CpuDevice
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.pipeline.continuity import Aim, GuidedContinuity
from auras_ros.pipeline.plan import Plan
from tests.pipeline.elsewhere import Elsewhere, values_stay_behind
from tests.pipeline.families import FORMS, checkpoint, looks

MODES = [
    "",
    ",mode=dec",
    ",mode=par,concurrency=2",
    ",mode=auras,pp_generation=2",
    ",mode=auras,pp_generation=2,pp_perception=2,fetch_offset=-1",
]
MORE = [
    ("tokens", ",mode=auras,pp_generation=2,merge=frame"),
    ("tokens", ",mode=auras,pp_generation=2,reuse=exact"),
    ("diffusion", ",mode=auras,pp_generation=2,guide=rtc"),
    ("diffusion", ",mode=seq,guide=rtc"),
]


class Forgetful(CpuDevice):
    """Runs each body once, as a capture does, and forgets it. held: what it had hold of, and in which stage."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[str, weakref.ref[Any]]] = []

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        with torch.no_grad():
            body()
        self.held += [(name, weakref.ref(each)) for each in _held(body)]
        return super().capture(name, _nothing, lane)

    def lost(self) -> list[str]:
        gc.collect()
        return [name for name, each in self.held if each() is None]


def _nothing() -> None:
    return None


def _held(value: Any) -> Iterator[Any]:
    """Tensors in a function's closure, defaults and arguments, and the objects whose methods it calls."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, partial):
        for each in (value.func, *value.args, *value.keywords.values()):
            yield from _held(each)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from _held(each)
    elif isinstance(value, dict):
        yield from _held(list(value.values()))
    elif hasattr(value, "__func__"):  # a bound method
        yield value.__self__
    elif hasattr(value, "__code__"):
        for cell in value.__closure__ or ():
            yield from _held(cell.cell_contents)
        yield from _held(value.__defaults__ or ())
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield value


@pytest.mark.parametrize(
    ("kind", "changes"),
    [*product(FORMS, (MODES[0], MODES[-1])), *product(("diffusion", "tokens", "pi0"), MODES[1:-1]), *MORE],
)
def test_what_a_stage_reads_outlives_its_capture(kind: str, changes: str) -> None:
    if kind == "act":  # one step
        changes = changes.replace("pp_generation=2", "pp_generation=1")
    device = Forgetful()
    pipeline = Pipeline(
        checkpoint(kind), Plan.parse(FORMS[kind][0] + changes), PipelineSettings(5), MonotonicClock(), device=device
    )
    pipeline.executor.warm_up(1)
    assert len({name for name, _ in device.held}) >= 2
    assert device.lost() == []
    pipeline.executor.close()


@pytest.mark.parametrize("changes", ["", ",mode=auras,pp_generation=2,pp_perception=2,fetch_offset=-1"])
@pytest.mark.parametrize("kind", ["transformer", "tokens", "tinyvla", "pi0"])
def test_nothing_is_read_back_or_mixed_with_the_hosts(kind: str, changes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values_stay_behind(monkeypatch)
    device = Elsewhere()
    pipeline = Pipeline(
        checkpoint(kind), Plan.parse(FORMS[kind][0] + changes), PipelineSettings(5), MonotonicClock(), device=device
    )
    pipeline.executor.warm_up(1)
    assert device.captures >= 4
    pipeline.executor.close()


class Noted:
    """A mark of `Ordered`: says when it was waited for, by the host and not by a stage that comes after."""

    def __init__(self, mark: Mark, name: str, order: list[str]) -> None:
        self.mark, self._name, self._order = mark, name, order

    def wait(self) -> None:
        self._order.append(f"wait for {self._name}")
        self.mark.wait()

    def done(self) -> bool:
        return self.mark.done()


class Ordered(Elsewhere):
    """order: launches, and waits of the host."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        lane = super().lane(name)
        launch = lane.launch

        def noted(stage: Stage, after: Sequence[Mark] = ()) -> Mark:
            self.order.append(stage.name)
            return Noted(launch(stage, [getattr(mark, "mark", mark) for mark in after]), stage.name, self.order)

        lane.launch = noted  # type: ignore[method-assign]
        return lane


@pytest.mark.parametrize(
    ("kind", "changes", "ahead"),
    [
        ("diffusion", ",mode=auras,pp_generation=2", True),
        ("tokens", ",mode=auras,pp_generation=2", True),
        ("tokens", ",mode=auras,pp_generation=2,fetch_offset=-1", True),
        ("tokens", ",mode=auras,pp_generation=2,reuse=exact", False),
    ],
)
def test_generation_is_launched_while_its_context_is_perceived(
    kind: str, changes: str, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launch is hidden behind perception's run (Auras 5), unless which graph is launched depends on the values."""
    values_stay_behind(monkeypatch)
    device = Ordered()
    pipeline = Pipeline(
        checkpoint(kind), Plan.parse(FORMS[kind][0] + changes), PipelineSettings(5), MonotonicClock(), device=device
    )
    if not ahead:
        monkeypatch.setattr(torch, "equal", lambda *_: False)  # there are no values
    pipeline.warm_up()
    order = [name for name in device.order if name in ("perception", "fetch", "wait for perception")]
    frames = "|".join(order).split("perception|fetch" if ahead else "perception|wait for perception|fetch")
    assert len(frames) > 3
    rest = [each.strip("|") for each in frames[2:]]
    assert all("fetch" not in each for each in rest), order
    pipeline.executor.close()


@pytest.mark.parametrize("changes", ["", ",mode=par,concurrency=2", ",mode=par,concurrency=2,together=true"])
@pytest.mark.parametrize("kind", ["diffusion", "tokens"])
def test_seq_and_par_do_not_wait_between_perception_and_generation(
    kind: str, changes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A baseline is not handicapped: a host that waits there lets the GPU stand still for the time of a launch."""
    values_stay_behind(monkeypatch)
    device = Ordered()
    pipeline = Pipeline(
        checkpoint(kind), Plan.parse(FORMS[kind][0] + changes), PipelineSettings(5), MonotonicClock(), device=device
    )
    executor, frames = pipeline.executor, 3
    for frame, seen in enumerate(looks(executor.policy, frames)):
        worker = executor.workers[frame % len(executor.workers)]
        worker.begin(seen, 0)
        device.order.clear()
        worker.run()
        assert device.order[:3] == ["perception", "generation", "copy out"], device.order
        assert device.order[3:] == ["wait for perception", "wait for generation", "wait for copy out"]
        assert worker.end(0) is not None
    executor.close()


class Apart(Elsewhere):
    """Every lane in the thread that launches."""

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        return super().lane(name)


class Eager(TorchDispatchMode):
    """Operations on the device's tensors: a stage's are those of its capture, and no launch's."""

    def __init__(self) -> None:
        super().__init__()
        self.found = list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (args, kwargs or {})
        if any(each.is_meta for each in tree_leaves(given) if torch.is_tensor(each)):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        *product(("diffusion", "tokens", "pi0"), (*MODES[:4], ",mode=par,concurrency=2,together=true")),
        ("diffusion", ",mode=auras,pp_generation=2,fetch_offset=-1,batched=false"),
        ("tokens", ",mode=auras,pp_generation=2,merge=frame"),
        *product(("diffusion", "pi0"), (f"{mode},guide=rtc" for mode in (*MODES[:2], MODES[3]))),
        ("diffusion", ",mode=auras,pp_generation=2,batched=false,guide=inpaint"),
    ],
)
def test_nothing_runs_on_the_device_but_stages(kind: str, changes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a frame's boundary neither: requests move up, and a new one begins, in one captured stage. Operation by
    operation that was 18 copies at ten stages, and a copy from the host's ordinary memory, which the host waits for."""
    values_stay_behind(monkeypatch)
    device, emitted = Apart(), 0
    plan = Plan.parse(FORMS[kind][0] + changes)
    aimed: list[Aim | None] = []
    aim = GuidedContinuity.aim
    monkeypatch.setattr(GuidedContinuity, "aim", lambda *given: aimed.append(aim(*given)) or aimed[-1])
    executor = Pipeline(checkpoint(kind), plan, PipelineSettings(5), MonotonicClock(), device=device).executor
    for number, seen in enumerate(looks(executor.policy, 7)):
        eager = Eager()
        with eager if number > 3 else nullcontext():  # everything is captured then
            for worker in executor.workers:
                if worker.wants(seen, number):
                    worker.begin(seen, number)
                    worker.run()
                    emitted += worker.end(number) is not None
        assert eager.found == []
    assert emitted > 3
    assert plan.guide == "none" or aimed[-1] is not None
    executor.close()


def test_what_only_the_body_holds_is_noticed() -> None:
    device = Forgetful()
    lane = device.lane("lane")
    kept, out = torch.ones(2), torch.zeros(2)

    def build() -> Callable[[], None]:
        only_here = [torch.ones(2)]

        def add() -> None:
            out.copy_(kept + only_here[0])

        return add

    def copy() -> None:
        out.copy_(kept)

    device.capture("good", copy, lane)
    assert device.lost() == []
    device.capture("bad", build(), lane)
    assert device.lost() == ["bad"]
    device.close()
