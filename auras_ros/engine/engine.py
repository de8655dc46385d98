"""The engine: `step` drains what has finished, admits, schedules and dispatches (HeteroServe 5.4's loop).

One thread owns all of its state; others put requests into the intake and set `cancelled`. Forwards run where
`StageForwards` puts them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.clock import MonotonicClock, SchedulerClock
from auras_ros.device.reservation import FrameReservation
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.adapters import EngineAdapters
from auras_ros.engine.allocation import BlockAllocation
from auras_ros.engine.choose import NoTokenError
from auras_ros.engine.forwards import StageForwards
from auras_ros.engine.gaps import FrameGaps
from auras_ros.engine.grammar import Grammars
from auras_ros.engine.images import ImageCache
from auras_ros.engine.intake import Intake
from auras_ros.engine.options import MOST_LENGTH, EngineOptions
from auras_ros.engine.reply import AnswerText, Listener, Reply
from auras_ros.engine.request import (
    AnswerToken,
    ContextLengthError,
    FinishReason,
    InvalidRequestError,
    RequestUsage,
    VlmRequest,
    check_prompt,
)
from auras_ros.engine.scheduler import (
    Dispatch,
    EngineState,
    Stage,
    StageQueues,
    StageScheduler,
)
from auras_ros.engine.stats import EngineSnapshot, EngineStats
from auras_ros.engine.tables import BlockTables, EngineMemory
from auras_ros.engine.valora import LoraScheduler, most_admitted
from auras_ros.engine.workers import Outcome
from auras_ros.lora.heads import HeadResult
from auras_ros.lora.pool import PoolStats
from auras_ros.lora.registry import AdapterError, KnownAdapter
from auras_ros.models.vlm import ImageEmbeddings

LOGGER = logging.getLogger(__name__)
CLOSED = "the engine is closed"


def _nothing() -> None: ...


@dataclass(eq=False)
class RunningForward:
    """changes: whether it computes an adapter's weights, or waits for one beside it that does. ended_ns: set by the
    thread that ran it, a moment after the future is done."""

    future: Future[Outcome]
    dispatch: Dispatch
    begun_ns: int
    changes: bool = False
    ended_ns: int = 0


class Engine:
    """Made by `build.make_engine`. Either `start` gives it a thread of its own, or somebody calls `step`."""

    def __init__(
        self,
        checkpoint: VlmCheckpoint,
        options: EngineOptions,
        memory: EngineMemory,
        forwards: StageForwards,
        scheduler: StageScheduler,
        clock: SchedulerClock | None = None,
        reservation: FrameReservation | None = None,
    ) -> None:
        """memory: that the forwards' workers read and write. reservation: of frames that use the same units; forwards
        run between them."""
        cache, lora = memory
        self.checkpoint, self.options, self._cache, self._forwards = checkpoint, options, cache, forwards
        self.length = min(options.length or MOST_LENGTH, checkpoint.length, (cache.blocks - 1) * cache.block)
        self._scheduler = scheduler
        self._clock = clock or MonotonicClock()
        slots = 0 if lora is None else lora.slots.count * lora.slots.blocks
        self._tables = BlockTables(cache, options.prefix_cache, slots)
        self._images = ImageCache(options.image_cache_mib << 20)
        self._intake = Intake(self.capacity)
        self._most_admitted = most_admitted(options) if isinstance(scheduler, LoraScheduler) else options.running
        self._gaps = FrameGaps(reservation, self._intake.wake)
        self.stats = EngineStats()
        self._queues = StageQueues()
        self._state = EngineState(self._tables.remaining, self._fits, self._queues)
        self.adapters = None
        if lora is not None:
            self.adapters = EngineAdapters(lora, self._tables, self._state, self._intake.wake)
            # all slots may be pinned while one request needs its blocks
            self.length = min(self.length, (cache.blocks - 1 - slots) * cache.block)
        self._blocks = BlockAllocation(self._tables, self._queues, self.stats, self.adapters)
        self._running: list[RunningForward] = []
        self._summed = frozenset(self._state.lora.summed)  # when the last forward began
        self._under_way: set[tuple[Stage, int]] = set()
        vocabulary = checkpoint.model.language.vocabulary
        self._grammars = Grammars(checkpoint.prompts.tokenizer, vocabulary, checkpoint.stop_ids)
        self._numbers, self._submitting = 0, threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.failure = ""

    # Called from any thread.

    def submit(
        self,
        request: VlmRequest,
        listener: Listener | None = None,
        admission: AbstractContextManager[None] | None = None,
    ) -> Reply:
        """Takes a request. The listener is called in the engine's thread and must return at once.

        admission: entered while the request becomes one of `open`, which takes microseconds; a new grammar is compiled
        before that and takes up to a second. Raises InvalidRequestError, naming the field; EngineFullError;
        EngineClosedError.
        """
        check_prompt(request.prompt, self.checkpoint.model.language.vocabulary)
        prompt_length = len(request.prompt.ids)
        if prompt_length >= self.length:
            raise ContextLengthError(
                f"prompt: {prompt_length} tokens leave no room for an answer: this model's maximum context length is "
                f"{self.length} tokens"
            )
        limit = self.length if request.max_tokens is None else prompt_length + request.max_tokens
        if limit > self.length:
            raise ContextLengthError(
                f"max_tokens: {request.max_tokens} and the prompt's {prompt_length} tokens are too many: this model's "
                f"maximum context length is {self.length} tokens"
            )
        vocabulary = self.checkpoint.model.language.vocabulary
        for token in request.logit_bias:
            if not 0 <= token < vocabulary:
                raise InvalidRequestError(f"logit_bias: token {token} is not one of {vocabulary}")
        adapter = self._adapter(request.adapter)
        if request.head and (adapter is None or not adapter.head):
            raise InvalidRequestError(f"head: adapter '{request.adapter}' has no task head")
        matcher = None if request.grammar is None else self._grammars.matcher(request.grammar)
        text = AnswerText(self.checkpoint.prompts.tokenizer, request.stop, request.skip_special, request.include_stop)
        reply = Reply(listener, text, self._intake.wake)
        with self._submitting:
            self._numbers += 1
            number = self._numbers
        active = ActiveRequest(request, reply, number, limit, matcher, adapter, self.checkpoint.stop_ids)
        active.arrange(self.checkpoint.model)
        active.timings.arrived_ns = self._clock.now_ns()
        with admission or nullcontext():
            self._intake.put(active)
        return reply

    def add_adapter(self, name: str, folder: Path) -> None:
        """Requests can ask for it from now on. Reads and checks the folder first, in the caller's thread. Raises
        AdapterError for a name that cannot be used or an engine that takes none, CheckpointError or ValueError for a
        folder that is refused."""
        self._taking_adapters().registry.add(name, folder)

    def set_adapters(self, folders: Mapping[str, Path]) -> None:
        """By name: these and no others can be asked for from now on, requests that have another one go on. All at once,
        and those whose files have not changed stay in memory. Reads and checks the others first, in the caller's
        thread. Raises AdapterError, which names the adapter; then nothing has changed."""
        if folders or self.adapters is not None:
            self._taking_adapters().registry.set(folders)

    def remove_adapter(self, name: str) -> None:
        """Nobody can ask for it any more; requests that have it go on. Raises AdapterError if it is not there."""
        self._taking_adapters().registry.remove(name)

    def adapter_names(self) -> list[str]:
        return [] if self.adapters is None else self.adapters.registry.names()

    @property
    def running(self) -> int:
        """Requests in one of the stages."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def waiting(self) -> int:
        return self._intake.waiting

    @property
    def open(self) -> int:
        """Requests that were taken and have not ended."""
        return self._intake.open

    @property
    def capacity(self) -> int:
        """Requests that it takes before it refuses one."""
        return self.options.running + self.options.waiting

    def snapshot(self) -> EngineSnapshot:
        stats = replace(self.stats, ended=self.stats.ended.copy())
        pool = PoolStats() if self.adapters is None else replace(self.adapters.pool.stats)
        return EngineSnapshot(stats, self.open, self.running, self.waiting, self.blocks_in_use, self.failure, pool)

    @property
    def blocks_in_use(self) -> float:
        """Share of the blocks that requests own now."""
        return 1 - (self._tables.free + self._tables.reserved) / self._tables.size

    def under_way(self) -> dict[Stage, int]:
        """The stages of which a forward runs now, and since when, by the engine's clock, ns."""
        return dict(self._under_way.copy())

    def start(self, after_step: Callable[[], None] | None = None) -> None:
        """Runs in a thread of its own until `close`. after_step: called there after every step. Raises RuntimeError if
        it runs already."""
        if self._thread is not None:
            raise RuntimeError("the engine was started already")
        self._thread = threading.Thread(target=self._run, args=(after_step or _nothing,), name="engine", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Every request ends as cancelled; a second call does nothing."""
        self._intake.close(CLOSED)  # before the last look for requests that wait
        self._grammars.close()
        self._closing.set()
        self._intake.wake()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        else:
            self._abandon("cancelled", CLOSED)
        self._forwards.close()
        if self.adapters is not None:
            self.adapters.close()

    # The engine's own thread.

    def step(self) -> bool:
        """One round. Returns whether anything was done."""
        preempted, drained = self.stats.preemptions, self._drain()
        admitted = self._admit()
        dispatched = 0
        while (dispatch := self._scheduler.next(self._state)) is not None:
            if not self._gaps.begin(dispatch) or not self._dispatch(dispatch):
                break
            dispatched += 1
            if self._running and self._running[-1].future.done():  # in this thread: what it made is scheduled first
                break
        return bool(drained or admitted or dispatched or self.stats.preemptions > preempted)

    def wait(self, timeout_s: float | None = None) -> None:
        """After a step that did nothing: until a forward has ended, a request comes, or this time is over."""
        self._intake.wait(timeout_s)

    def _run(self, after_step: Callable[[], None]) -> None:
        try:
            while not self._closing.is_set():
                worked = self.step()
                after_step()
                if not worked:
                    self._intake.wait(self._until_deadline_s())
            self._abandon("cancelled", CLOSED)
        except BaseException as error:  # nothing may end this thread without a word: its requests would wait for ever
            self.failure = f"{type(error).__name__}: {error}"
            LOGGER.exception("the engine failed")
            self._intake.close(f"the engine failed: {self.failure}")
            self._abandon("error", f"the engine failed: {self.failure}")
            after_step()

    def _fits(self, requests: Sequence[ActiveRequest], counts: Sequence[int]) -> bool:
        return self._blocks.fits(requests, counts)

    def _drain(self) -> int:
        """Takes over what forwards have made."""
        finished = [each for each in self._running if each.future.done()]
        for forward in finished:
            self._running.remove(forward)
            future, dispatch = forward.future, forward.dispatch
            del self._state.running[dispatch.stage]
            taken_ns = (forward.ended_ns or self._clock.now_ns()) - forward.begun_ns
            self._gaps.ended(dispatch, taken_ns)
            for each in dispatch.requests:
                each.busy, each.ran_ns = False, self._clock.now_ns()
                each.timings.spend(dispatch.stage, taken_ns)
            if dispatch.stage != "vision" and not forward.changes:
                self._state.lora.ran(dispatch, taken_ns)
            error = future.exception()
            if error is not None:
                self._lost(dispatch, error)
            elif dispatch.stage == "vision":
                self._seen(dispatch, future.result())
            else:
                self._stored(dispatch, future.result())
        return len(finished)

    def _taking_adapters(self) -> EngineAdapters:
        if self.adapters is None:
            raise AdapterError("adapter: this engine takes none (max_loras)")
        return self.adapters

    def _adapter(self, name: str) -> KnownAdapter | None:
        """Raises InvalidRequestError."""
        if not name:
            return None
        try:
            return self._taking_adapters().registry.find(name)
        except AdapterError as error:
            raise InvalidRequestError(str(error)) from error

    def _next(self, now_ns: int) -> ActiveRequest | None:
        """The first one that waits and whose adapter is in memory."""
        if self.adapters is None:
            return self._intake.take()
        active = self._intake.take_first(self.adapters.picker(now_ns, self.running < self.options.running))
        for each, why in self.adapters.failed():
            if self._intake.take_if(lambda one, each=each: one is each):  # type: ignore[misc]
                self._end(each, "error", why)
        return active

    def _admit(self) -> int:
        """Ends what is cancelled or too late, and starts what waits while there is room."""
        now_ns, changed = self._clock.now_ns(), 0
        self._state.now_ns = now_ns
        if self.adapters is not None:
            changed += self.adapters.poll()
            self._state.lora.switch_ns = self.adapters.switch_ns
        over = self._intake.take_if(lambda each: each.over(now_ns) is not None)
        for each in [*over, *(each for each in self._queues.everyone() if not each.busy)]:
            if (reason := each.over(now_ns)) is not None:
                self._end(each, reason)
                changed += 1
        while self.running < self._most_admitted and (active := self._next(now_ns)) is not None:
            active.timings.started_ns = now_ns
            for key in set(active.image_keys):
                if (image := self._images.get(key)) is not None:
                    active.see(key, image)
                    self.stats.image_hits += 1
            self._queues.move(active, "vision" if active.unseen() else "prefill")
            changed += 1
        return changed

    def _dispatch(self, dispatch: Dispatch) -> bool:
        """False if no request of it got its blocks."""
        if dispatch.stage != "vision":
            wanted, dispatch = dispatch, self._blocks.allocate(dispatch)
            if not dispatch.requests:
                self._gaps.ended(wanted)
                return False
        changes = False
        if dispatch.stage != "vision" and self.adapters is not None:
            dispatch = replace(dispatch, merged=self.adapters.merge(dispatch.merged))
            summed, self._summed = self._summed, frozenset(self._state.lora.summed)
            changes = summed != self._summed or any(each.changes for each in self._running)
        for each in dispatch.requests:
            each.busy = True
        self._state.running[dispatch.stage] = dispatch
        self._state.last = dispatch.stage
        begun_ns = self._clock.now_ns()
        self._under_way.add((dispatch.stage, begun_ns))
        forward = RunningForward(self._forwards.submit(dispatch), dispatch, begun_ns, changes)
        self._running.append(forward)
        forward.future.add_done_callback(lambda _: self._finished(forward))
        return True

    def _finished(self, forward: RunningForward) -> None:
        """Called in the forward's own thread, perhaps when the next one of the stage has begun."""
        forward.ended_ns = self._clock.now_ns()
        self._under_way.discard((forward.dispatch.stage, forward.begun_ns))
        self._intake.wake()

    # Outcomes.

    def _seen(self, dispatch: Dispatch, image: Outcome) -> None:
        assert isinstance(image, ImageEmbeddings)
        key = dispatch.requests[0].image_keys[dispatch.image]
        self._images.put(key, image)
        self.stats.images += 1
        for each in list(self._queues["vision"]):
            each.see(key, image)
            if not each.unseen():
                self._queues.move(each, "prefill")

    def _stored(self, dispatch: Dispatch, tokens: Outcome) -> None:
        """Keys and values of a prefill or decode are there, and the next token of each request that is through."""
        assert isinstance(tokens, list)
        for each, count, token in zip(dispatch.requests, dispatch.counts, tokens, strict=True):
            if isinstance(token, NoTokenError):
                self._end(each, "error", str(token), forget=True)
                continue
            through = count == each.remaining
            if isinstance(token, HeadResult):
                self._tables.stored(each, count - 1)
                each.timings.first_token_ns = self._clock.now_ns()
                self._end(each, "stop", result=token)
                continue
            if through:
                each.ids.append(token.id)
            self._tables.stored(each, count)
            if through:
                self._queues.move(each, "decode")
                self._answer(each, token)

    def _answer(self, active: ActiveRequest, token: AnswerToken) -> None:
        """One more token of the answer."""
        if not active.timings.first_token_ns:
            active.timings.first_token_ns = self._clock.now_ns()
        self.stats.tokens += 1
        reason: FinishReason | None = None
        stop_reason: int | str | None = None
        stops = token.id in active.stop_ids
        if stops and token.id not in active.eos_ids:
            stop_reason = token.id
        if stops or (active.matcher is not None and active.matcher.complete):
            reason = "stop"
        elif len(active.ids) >= active.limit:
            reason = "length"
        visible = not stops or active.request.include_stop
        stop_text = active.reply.push(token, visible, active.answered > active.request.min_tokens)
        if stop_text is not None:
            reason, stop_reason = "stop", stop_text
        if reason is not None:
            self._end(active, reason, stop_reason=stop_reason)

    def _lost(self, dispatch: Dispatch, error: BaseException) -> None:
        """A forward failed: its requests end, the others go on."""
        LOGGER.error("a forward of %s failed: %s", dispatch.stage, error)
        for each in dispatch.requests:
            self._end(each, "error", f"{dispatch.stage} failed: {error}", forget=True)

    def _end(
        self,
        active: ActiveRequest,
        reason: FinishReason,
        detail: str = "",
        forget: bool = False,
        result: HeadResult | None = None,
        stop_reason: int | str | None = None,
    ) -> None:
        """The answer is over. forget: its blocks may hold numbers that are not finite. The others are the answer's."""
        self._queues.move(active, None)
        self._tables.give_back(active, forget)
        if self.adapters is not None:
            self.adapters.release(active)
        active.timings.ended_ns = self._clock.now_ns()
        self.stats.ended[reason] += 1
        self.stats.prompt_tokens += active.prompt_length
        self.stats.cached_tokens += active.cached
        self._intake.ended()
        usage = RequestUsage(active.prompt_length, active.cached, active.preempted, active.timings)
        active.reply.end(reason, detail, usage, result, stop_reason, active.prompt_tokens)

    def _abandon(self, reason: FinishReason, detail: str) -> None:
        """Ends every request, when what runs has finished."""
        wait([each.future for each in self._running])
        for each in self._running:
            self._gaps.ended(each.dispatch)
        self._running.clear()
        for active in [*self._queues.everyone(), *self._intake.take_if(lambda _: True)]:
            self._end(active, reason, detail)

    def _until_deadline_s(self) -> float | None:
        """Time to the next deadline of those that could end now, or until a forward may fit; None without one."""
        own = [each.deadline_ns for each in self._queues.everyone() if not each.busy] + [
            self._intake.next_deadline_ns()
        ]
        deadlines = [each for each in [*own, self._gaps.retry_ns()] if each is not None]
        return max(min(deadlines) - self._clock.now_ns(), 0) / 1e9 if deadlines else None
