"""Forwards of one kind, alone or beside decode, by an engine that is given nothing else to do: what a `StageProfile` is
measured with.

Fillers are requests without an image that decode as long as they are needed. Probes run one stage after another and end
with their first token. Neither finds anything in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.engine.engine import Engine
from auras_ros.engine.forwards import ForwardLog
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.scheduler import Dispatch, EngineState, Stage, decode_all, next_image, prefill_up_to

BESIDE = 0.98  # least share of a probe's forward that is beside decodes: the first of them begins a little later
ATTEMPTS = 10  # at a trial, on a machine that is busy with something else


@dataclass(frozen=True)
class ProbePhase:
    """One kind of forward. stage: of the probes, each alone in its forward; of decode a stated number of forwards.
    beside: the fillers decode meanwhile, again and again. joined: they decode within the prefill. split: as in
    `Dispatch`. size: of a prefill its tokens, 0 is the whole prompt of an image; of decode its rows."""

    stage: Stage
    beside: bool = False
    joined: bool = False
    split: int | None = None
    size: int = 0


@dataclass(frozen=True)
class ProbeTrial:
    """Phases one after another with the same requests. fillers, probes: how many. tokens: of a probe's prompt without
    an image; 0: with an image."""

    phases: tuple[ProbePhase, ...]
    fillers: int = 0
    probes: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class PhaseTimes:
    """What a phase took. own_ms: of the stage's forwards; decode_ms: of decodes beside them; of both only those that
    were beside the other stage from begin to end. Within span_ms, from the stage's first begin to its last end,
    `forwards` of the stage and `decodes`, a part of the last one included, were done."""

    own_ms: tuple[float, ...]
    decode_ms: tuple[float, ...]
    span_ms: float
    forwards: int
    decodes: float

    def complete(self, phase: ProbePhase) -> bool:
        return bool(self.own_ms and (self.decode_ms or not phase.beside))


class ProbeScheduler:
    """Starts what the phase says and nothing else. idle: nothing is left to start, and nothing runs."""

    def __init__(self) -> None:
        self.phase: ProbePhase | None = None
        self.idle, self._decodes = True, 0

    def begin(self, phase: ProbePhase | None, decodes: int = 0) -> None:
        """None: requests are only taken and ended. decodes: forwards of a phase of decode."""
        self.phase, self.idle, self._decodes = phase, False, decodes

    def next(self, state: EngineState) -> Dispatch | None:
        dispatch = None if self.phase is None else self._next(state, self.phase)
        self.idle = dispatch is None and not state.running
        return dispatch

    def _next(self, state: EngineState, phase: ProbePhase) -> Dispatch | None:
        if phase.stage == "decode":
            decode = decode_all(state, phase.split) if self._decodes else None
            self._decodes -= decode is not None
            return decode
        if phase.beside and phase.stage in state.running:
            return decode_all(state, phase.split)
        return self._probe(state, phase)

    def _probe(self, state: EngineState, phase: ProbePhase) -> Dispatch | None:
        probe = next_image(state) if phase.stage == "vision" else prefill_up_to(state, 1, chunked=False)
        rows = decode_all(state) if phase.joined else None
        if probe is not None and rows is not None:
            probe = replace(probe, requests=rows.requests + probe.requests, counts=rows.counts + probe.counts)
        return None if probe is None else replace(probe, split=phase.split)


class Prober:
    """Runs trials. wait: called after a step of the engine that did nothing, returns when a forward has ended. log: has
    every forward of the engine."""

    def __init__(
        self,
        engine: Engine,
        scheduler: ProbeScheduler,
        log: ForwardLog,
        wait: Callable[[], None],
        image_prompt: Callable[[], VlmPrompt],
        decodes: int = 16,
        seed: int = 0,
    ) -> None:
        """image_prompt: makes a prompt with an image that no other one has; all are equally long. decodes: forwards of
        a phase of decode."""
        self.engine, self._scheduler, self._log, self._wait = engine, scheduler, log, wait
        self._image_prompt, self._decodes, self._random = image_prompt, decodes, np.random.default_rng(seed)
        self.prompt = len(image_prompt().ids)

    def run(self, trial: ProbeTrial) -> dict[ProbePhase, PhaseTimes]:
        """What each phase took, none of it empty. Raises RuntimeError, saying why, if a request failed or was not
        served, or if no forward was beside the other stage for all of its time, as often as it was tried."""
        for _ in range(ATTEMPTS):
            found = self._run(trial)
            lacking = [phase for phase, times in found.items() if not times.complete(phase)]
            if not lacking:
                return found
        raise RuntimeError(
            f"probing: no forward of vision or prefill, or none of decode, was beside the other one from its begin to "
            f"its end ({lacking[0]}): more probes, or fillers with longer answers, are needed"
        )

    def close(self) -> None:
        self.engine.close()

    def _run(self, trial: ProbeTrial) -> dict[ProbePhase, PhaseTimes]:
        fillers = [self._submit(self._text(self.prompt), None) for _ in range(trial.fillers)]
        self._drive(ProbePhase("prefill"))
        prompts = (self._text(trial.tokens) if trial.tokens else self._image_prompt() for _ in range(trial.probes))
        probes = [self._submit(prompt, 1) for prompt in prompts]
        found = {}
        for phase in trial.phases:
            self._log.clear()
            self._drive(phase)
            found[phase] = phase_times(phase, trial.fillers, self._log)
        for reply in fillers:
            reply.cancel()
        self._drive(None)
        self._check(fillers, probes)
        return found

    def _text(self, tokens: int) -> VlmPrompt:
        ids = self._random.integers(0, self.engine.checkpoint.model.language.vocabulary, tokens)
        return VlmPrompt(torch.from_numpy(ids), (), torch.zeros(0, dtype=torch.int64))

    def _submit(self, prompt: VlmPrompt, tokens: int | None) -> Reply:
        return self.engine.submit(VlmRequest(prompt, max_tokens=tokens, ignore_eos=True), lambda _: None)

    def _drive(self, phase: ProbePhase | None) -> None:
        """Until nothing is left of the phase."""
        self._scheduler.begin(phase, self._decodes)
        while not self._scheduler.idle:
            if not self.engine.step() and not self._scheduler.idle:
                self._wait()

    def _check(self, fillers: Sequence[Reply], probes: Sequence[Reply]) -> None:
        if self.engine.stats.preemptions or not all(each.ended for each in probes):
            raise RuntimeError("probing: the requests do not fit: too few blocks (kv_mib), or too long a prompt")
        for answer in (reply.result(0) for reply in (*fillers, *probes)):
            if answer.finish == "error":
                raise RuntimeError(f"probing: {answer.detail}")


def phase_times(phase: ProbePhase, rows: int, log: ForwardLog) -> PhaseTimes:
    """rows: of a decode beside the stage."""
    own = [(began, ended) for dispatch, began, ended in log if dispatch.stage == phase.stage]
    if not own:
        return PhaseTimes((), (), 0.0, 0, 0.0)
    within = _hull(own)
    span_ms = (within[1] - within[0]) / 1e6
    if not phase.beside:
        return PhaseTimes(_ms(own), (), span_ms, len(own), 0.0)
    decodes = [(began, ended) for dispatch, began, ended in log if dispatch.stage == "decode"]
    full = [(a, b) for dispatch, a, b in log if dispatch.stage == "decode" and len(dispatch.requests) == rows]
    beside = [each for each in own if full and _inside(each, _hull(full)) >= BESIDE * (each[1] - each[0])]
    whole = [each for each in full if _inside(each, within) == each[1] - each[0]]
    return PhaseTimes(_ms(beside), _ms(whole), span_ms, len(own), _done(decodes, within, _ms(whole)))


def _done(decodes: Sequence[tuple[int, int]], within: tuple[int, int], whole_ms: Sequence[float]) -> float:
    """Decodes within a time, parts included: of one that outlasts it, and is quicker then, as much as the others of
    `whole_ms` do meanwhile."""
    done = 0.0
    for each in decodes:
        inside, length = _inside(each, within), each[1] - each[0]
        usual = 1e6 * median(whole_ms) if whole_ms and inside < length else length
        done += inside / max(usual, 1)
    return done


def _hull(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return min(began for began, _ in spans), max(ended for _, ended in spans)


def _inside(span: tuple[int, int], within: tuple[int, int]) -> int:
    return max(min(span[1], within[1]) - max(span[0], within[0]), 0)


def _ms(spans: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    return tuple((ended - began) / 1e6 for began, ended in spans)


Round = Mapping[ProbePhase, PhaseTimes]
"""What the phases of all trials took, once."""
