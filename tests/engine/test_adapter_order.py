"""In which order requests with adapters run, and how long the policies let one wait: an engine on a virtual clock.

Guards: two requests of one adapter that change places; a request that a policy forgets, or lets wait for longer than
`lora_theta_ms`; one that others overtake for as long as its adapter is not there.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.clock import VirtualClock
from auras_ros.engine.adapters import OVERTAKING_NS
from auras_ros.engine.engine import Engine
from auras_ros.engine.forwards import InlineExecutor
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.scheduler import Dispatch
from auras_ros.engine.valora import POLICY_NAMES
from auras_ros.engine.workers import Outcome
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import chat, ended, engine_of, finish
from tests.lora.adapters import save_adapter
from tests.lora.test_pool import Later

pytest.importorskip("transformers")
pytest.importorskip("PIL")

FORWARD_MS, CHANGE_MS, THETA_MS, MS = 10, 5, 100, 1_000_000
STEP_MS = FORWARD_MS + CHANGE_MS
NAMES = ("", "a", "b", "c")


class Timed:
    """An engine's forwards, each FORWARD_MS long, and CHANGE_MS more if an adapter's weights are computed for it."""

    def __init__(self, engine: Engine, clock: VirtualClock) -> None:
        assert engine.adapters is not None
        self._inner, self._clock, self._weights = engine._forwards, clock, engine.adapters._runtime.weights
        self._weights.took_ns = CHANGE_MS * MS
        self.started: list[tuple[VlmRequest, float]] = []  # in the order of their first forwards, and when that began
        self.rows: list[int] = []  # of each forward
        # Of each adapter, before each forward of each request, since the one before or since it was admitted.
        self.waited_ms: dict[str, list[float]] = defaultdict(list)

    def submit(self, dispatch: Dispatch) -> Future[Outcome]:
        now_ns = self._clock.now_ns()
        self.rows.append(len(dispatch.requests))
        for each in dispatch.requests:
            since_ns = each.ran_ns or each.timings.started_ns
            self.waited_ms[each.request.adapter].append((now_ns - since_ns) / MS)
            if not each.ran_ns:
                self.started.append((each.request, now_ns / MS))
        if dispatch.merged is not None and dispatch.merged not in self._weights._summed:
            self._clock.advance(CHANGE_MS * MS)
        self._clock.advance(FORWARD_MS * MS)
        future = self._inner.submit(dispatch)
        self._weights.took_ns = CHANGE_MS * MS
        return future

    def close(self) -> None:
        self._inner.close()


@pytest.fixture(scope="module")
def folders(written: Callable[[str], Written], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, model = tmp_path_factory.mktemp("adapters"), written("llava").model
    return {name: save_adapter(folder / name, model, rank=2, seed=seed) for seed, name in enumerate(NAMES) if name}


class Play:
    """One engine, and who asked for what."""

    def __init__(self, written: Callable[[str], Written], folders: dict[str, Path], **options: Any) -> None:
        self.clock = VirtualClock(MS)
        sizes = {"max_lora_rank": 2, "kv_mib": 8, "lora_theta_ms": THETA_MS, "waiting": 1000}
        self.engine = engine_of(written("llava").path, clock=self.clock, **sizes | options)
        for name, path in folders.items():
            self.engine.add_adapter(name, path)
        assert self.engine.adapters is not None
        self.pool = self.engine.adapters.pool
        self.pool._executor = InlineExecutor()
        self.engine._forwards = self.timed = Timed(self.engine, self.clock)
        self.prompt: VlmPrompt = chat(self.engine.checkpoint, "left?")
        self.asked: list[VlmRequest] = []

    def ask(self, adapter: str, tokens: int = 3) -> None:
        self.asked.append(VlmRequest(self.prompt, max_tokens=tokens, ignore_eos=True, adapter=adapter))
        self.engine.submit(self.asked[-1])

    def finish(self) -> None:
        finish(self.engine)
        ended(self.engine)
        self.engine.close()


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_requests_of_one_adapter_start_in_the_order_in_which_they_came(
    written: Callable[[str], Written], folders: dict[str, Path], policy: str
) -> None:
    """Equal ones, told apart by identity; with fewer slots than adapters, so that some are overtaken by others'."""
    play = Play(written, folders, lora_policy=policy, running=4, max_loras=2, prefill_tokens=24)
    chance = random.Random(0)
    while len(play.asked) < 80:
        for _ in range(chance.randrange(4)):
            play.ask(chance.choice(NAMES), chance.randrange(1, 5))
        play.engine.step()
    play.finish()
    started = [request for request, _ in play.timed.started]
    for name in NAMES:
        own = [request for request in play.asked if request.adapter == name]
        assert [request for request in started if request.adapter == name] == own
    assert started != play.asked


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_policy_chooses_among_all_that_the_engine_has_taken(
    written: Callable[[str], Written], folders: dict[str, Path], policy: str
) -> None:
    """More than can run: algorithm 1 and merging fill a batch with one adapter's requests."""
    play = Play(written, folders, lora_policy=policy, running=3, max_loras=3, lora_theta_ms=10**6)
    for name in "abaabaaa":
        play.ask(name, 12)
    play.finish()
    order = "".join(request.adapter for request, _ in play.timed.started)
    assert order == ("abaabaaa" if policy in ("per-forward", "unmerge-only") else "aaaaaabb")
    assert max(play.timed.rows) == 3


def test_a_change_of_the_weights_is_no_decodes_time(
    written: Callable[[str], Written], folders: dict[str, Path]
) -> None:
    """A policy would take what is merged for slower than what is not."""
    play = Play(written, folders, running=2, max_loras=1)
    for name in ("", "a"):
        play.ask(name, 9)  # merged after some decodes
        finish(play.engine)
    play.finish()
    state = play.engine._state.lora
    assert state.summed != (None,)
    assert [each / MS for each in state.decodes_ns.values()] == pytest.approx([FORWARD_MS] * 2)


def test_a_forward_beside_a_change_that_failed_ends_no_others(
    written: Callable[[str], Written], folders: dict[str, Path]
) -> None:
    """The one beside it has what it has; its own thread tries or fails."""
    play = Play(written, folders, max_loras=1)
    play.ask("a")
    play.finish()
    adapters, state = play.engine.adapters, play.engine._state
    assert adapters is not None
    (loaded,) = adapters.pool._loaded.values()
    adapters.pool.pin(loaded.resident)
    state.lora.merged = loaded.resident
    state.running["decode"] = Dispatch("decode", ())
    adapters._runtime.weights.refusal = "a change of the weights failed"
    assert adapters.merge(loaded.resident) is loaded.resident
    state.running.clear()
    assert adapters.merge(loaded.resident) is None


WAITS_MS = {
    "per-forward": STEP_MS,  # that of the other stage
    "unmerge-only": STEP_MS,
    "valora": THETA_MS + STEP_MS,
    "dlora": THETA_MS + 2 * STEP_MS,  # nothing counts the next one beforehand
    "merge-only": THETA_MS + 2 * len(NAMES) * STEP_MS,  # who has waited for longer, by adapter and stage
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_nobody_waits_for_longer_than_theta_and_what_runs_then(
    written: Callable[[str], Written], folders: dict[str, Path], policy: str, seed: int
) -> None:
    play = Play(written, folders, lora_policy=policy, running=8, max_loras=3)
    chance = random.Random(seed)
    while len(play.asked) < 80:
        while play.engine.open < chance.randrange(9):  # all of them are admitted at once
            play.ask(chance.choices(NAMES, (1, 6, 1, 1))[0], chance.randrange(1, 30))
        if not play.engine.step():
            play.clock.advance(FORWARD_MS * MS)
    play.finish()
    longest_ms = max(max(each) for each in play.timed.waited_ms.values())
    assert longest_ms <= WAITS_MS[policy]
    if WAITS_MS[policy] > THETA_MS:
        assert longest_ms > THETA_MS / 2


def test_an_application_with_a_theta_of_its_own_waits_for_no_longer(
    written: Callable[[str], Written], folders: dict[str, Path]
) -> None:
    play = Play(written, folders, lora_policy="valora", running=8, max_loras=3, lora_thetas="b=40")
    chance = random.Random(0)
    while len(play.asked) < 80:
        while play.engine.open < chance.randrange(9):
            play.ask(chance.choices(NAMES[1:], (6, 1, 1))[0], chance.randrange(1, 30))
        if not play.engine.step():
            play.clock.advance(FORWARD_MS * MS)
    play.finish()
    assert max(play.timed.waited_ms["b"]) <= 40 + STEP_MS
    assert 60 + STEP_MS < max(play.timed.waited_ms["c"]) <= THETA_MS + STEP_MS


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_who_waits_for_an_adapter_is_overtaken_for_a_second_at_most(
    written: Callable[[str], Written], folders: dict[str, Path], policy: str
) -> None:
    """Where a policy chooses among more than may run, by no more than those."""
    play = Play(written, folders, lora_policy=policy, running=2, max_loras=1)
    play.pool._executor = reading = Later()
    play.ask("a")
    while play.clock.now_ns() < 2 * OVERTAKING_NS:
        play.ask("", 1)
        if not play.engine.step():
            play.clock.advance(FORWARD_MS * MS)
    times = [at_ms for _, at_ms in play.timed.started]
    assert OVERTAKING_NS / MS - 2 * STEP_MS < max(times) <= OVERTAKING_NS / MS + STEP_MS
    reading.run()
    play.finish()
    started = [request for request, _ in play.timed.started]
    assert started.index(play.asked[0]) == len(times)
    assert len(started) == len(play.asked)
