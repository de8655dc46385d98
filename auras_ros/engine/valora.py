"""Which requests run and which adapter is merged meanwhile (VaLoRA 4.4.3, algorithm 1), around a scheduler that chooses
stage and split; and what it is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.per_forward import PER_FORWARD, PerForward
from auras_ros.engine.scheduler import DECODER, Dispatch, EngineState, StageScheduler
from auras_ros.lora.slots import Resident

UNMERGE_ONLY = "unmerge-only"
AMONG = 4  # batches that a policy chooses among; each request of them has its image and its adapter in memory


class LoraBatch(NamedTuple):
    """The requests that may run, and the adapter in the decoder's weights."""

    requests: Sequence[ActiveRequest]
    merged: Resident | None


class LoraPolicy(Protocol):
    """A request can starve if it would run with nothing merged: if it is among the first of a batch. Who is behind them
    waits for a place, whatever is merged."""

    @property
    def batch(self) -> int:
        """Requests that it lets run at once (MaxBS)."""
        ...

    def choose(self, waiting: Sequence[ActiveRequest], state: EngineState) -> LoraBatch:
        """waiting: those of the decoder's stages, in a forward or not, first come first."""
        ...


class LoraScheduler:
    """The policy's choice before each forward, among the requests of the decoder's stages (`most_admitted`), those in a
    forward included: what they have decides with. While one of the decoder runs, another one beside it keeps what is
    merged; a change waits until none does. Images of a batch, first come first, wait for no choice, and decide none:
    nothing is merged for who cannot use it yet."""

    def __init__(self, inner: StageScheduler, policy: LoraPolicy) -> None:
        self._inner, self._policy = inner, policy

    def next(self, state: EngineState) -> Dispatch | None:
        waiting = sorted((each for stage in DECODER for each in state.queues[stage]), key=lambda each: each.order)
        requests, merged = self._policy.choose(waiting, state) if waiting else LoraBatch((), state.lora.merged)
        images = state.queues["vision"][: self._policy.batch]
        dispatch = self._inner.next(_only([*requests, *images], state))
        idle = not state.running and (dispatch is None or dispatch.stage == "vision")
        if waiting and idle and self._inner.next(_only(requests, state)) is None:
            # Those chosen cannot run, for want of blocks that others have: these do, in whatever mode is.
            owners_first = sorted(state.queues["prefill"], key=lambda each: not each.table)
            able = state.queues["decode"] or owners_first
            if (other := self._inner.next(_only(able[: self._policy.batch], state))) is not None:
                dispatch, merged = other, state.lora.merged
        if dispatch is None or dispatch.stage == "vision":
            return dispatch
        if merged is not state.lora.merged and any(stage in state.running for stage in DECODER):
            return None
        return replace(dispatch, merged=merged)


def _only(requests: Sequence[ActiveRequest], state: EngineState) -> EngineState:
    """What a scheduler sees that may run these alone."""
    return replace(state, lora=replace(state.lora, chosen=frozenset(each.number for each in requests)))


@dataclass(frozen=True)
class UnmergeOnly:
    """Every row has its adapter's products (S-LoRA, Punica). batch: requests at once."""

    batch: int

    def choose(self, waiting: Sequence[ActiveRequest], state: EngineState) -> LoraBatch:
        return LoraBatch(waiting[: self.batch], None)


@dataclass(frozen=True)
class MergeOnly:
    """Requests of one adapter at a time: of the one that has waited longest, until it has none or another has waited
    for theta_ms."""

    batch: int
    theta_ms: float

    def choose(self, waiting: Sequence[ActiveRequest], state: EngineState) -> LoraBatch:
        first = max(waiting[: self.batch], key=state.waited_ns)
        own = [each for each in waiting if each.resident is state.lora.merged]
        stays = own and state.waited_ns(first) < self.theta_ms * 1e6
        merged = state.lora.merged if stays else first.resident
        return LoraBatch([each for each in waiting if each.resident is merged][: self.batch], merged)


@dataclass(frozen=True)
class DLora:
    """Merged or unmerged, with a threshold for each change (dLoRA, Wu et al. 2024, as VaLoRA describes it): merged
    while the most wanted adapter has at least so large a share of the batch and no request of another one has waited
    for theta_ms; from unmerged it merges at `merge_share`, from merged it goes back below `unmerge_share`."""

    batch: int
    theta_ms: float
    merge_share: float = 0.75
    unmerge_share: float = 0.5

    def choose(self, waiting: Sequence[ActiveRequest], state: EngineState) -> LoraBatch:
        most, unmerged = _most_wanted(waiting), waiting[: self.batch]
        own = [each for each in waiting if most is not None and each.resident is most]
        others = [each for each in unmerged if each.resident is not most]
        starving = any(state.waited_ns(each) > self.theta_ms * 1e6 for each in others)
        share = self.unmerge_share if state.lora.merged is not None else self.merge_share
        if most is not None and not starving and len(own) >= share * min(len(waiting), self.batch):
            return LoraBatch(own[: self.batch], most)
        return LoraBatch(unmerged, None)


@dataclass(frozen=True)
class Valora:
    """Algorithm 1. batch: MaxBS, or all that wait if those are fewer: the paper's batches are full. theta_ms: the
    credit beyond which a request starves. A request's credit is how long it has waited, and what the next forward and a
    change of what is merged take. thetas: by adapter, where an application's latency constraint asks for another one
    than theta_ms. What is merged stays while half of the batch has it, and nothing is merged for requests that would
    end before the products that they are spared have made up for the change."""

    batch: int
    theta_ms: float
    thetas: Mapping[str, float] = field(default_factory=dict)

    def choose(self, waiting: Sequence[ActiveRequest], state: EngineState) -> LoraBatch:
        merged, unmerged = state.lora.merged, waiting[: self.batch]
        most = _most_wanted(waiting, merged)
        own = [each for each in waiting if most is not None and each.resident is most]
        switch_ns = 0 if most in (merged, *state.lora.summed) else state.lora.switch_ns
        takes_ns = state.lora.forward_ns + switch_ns
        starving = [
            each for each in unmerged
            if each.resident is not most and state.waited_ns(each) + takes_ns > self._theta_ns(each)
        ]  # fmt: skip
        batch, left = len(unmerged), len(unmerged) - len(starving)
        wanted = 2 * len(starving) <= batch and 2 * len(own) > batch - (most is merged)
        if wanted and (switch_ns == 0 or _pays(own[:left], state)):
            return LoraBatch([*starving, *own[:left]], most)  # merged; with others, mixture
        return LoraBatch(unmerged, None)

    def _theta_ns(self, active: ActiveRequest) -> float:
        return 1e6 * self.thetas.get(active.request.adapter or "", self.theta_ms)


POLICIES: Mapping[str, Callable[[int, float], LoraPolicy]] = {
    "valora": Valora,
    "dlora": DLora,
    "merge-only": MergeOnly,
    UNMERGE_ONLY: lambda batch, _: UnmergeOnly(batch),
}


POLICY_NAMES = (PER_FORWARD, *POLICIES)


def make_lora_scheduler(inner: StageScheduler, options: EngineOptions) -> StageScheduler:
    """By the options' policy. Raises ValueError for what does not fit."""
    if options.max_merged_loras > 1 and not options.lora_exact:
        raise ValueError("engine: max_merged_loras: without lora_exact the weights hold one adapter")
    unmerged = LoraScheduler(inner, UnmergeOnly(options.running))  # nothing is added to weights in 8 bits
    if options.lora_policy != PER_FORWARD:
        policy = make_policy(options.lora_policy, options.running, options.lora_theta_ms, options.lora_thetas)
        return unmerged if options.int8 else LoraScheduler(inner, policy)
    if options.lora_thetas:
        raise ValueError(f"engine: lora_thetas: {PER_FORWARD} lets nobody wait; choose lora_policy valora")
    if options.int8:
        return unmerged
    if not options.lora_exact:
        raise ValueError(f"engine: lora_policy: {PER_FORWARD} needs lora_exact; without it choose valora or another")
    return PerForward(inner)


def most_admitted(options: EngineOptions) -> int:
    """Requests in the stages at once: as many as may run; AMONG times as many where a policy chooses among them."""
    chooses = options.max_loras and not options.int8 and options.lora_policy not in (PER_FORWARD, UNMERGE_ONLY)
    return min(AMONG * options.running, options.running + options.waiting) if chooses else options.running


def make_policy(name: str, batch: int, theta_ms: float, thetas: str = "") -> LoraPolicy:
    """thetas: of adapters whose requests may wait for another time, name=ms,name=ms. Raises ValueError for a name that
    is not known, for such a list, and for one that the policy does not use."""
    if name not in POLICIES:
        raise ValueError(f"engine: lora_policy: {name!r} is none of {', '.join(POLICY_NAMES)}")
    made, own = POLICIES[name](batch, theta_ms), read_thetas(thetas)
    if not own:
        return made
    if not isinstance(made, Valora):
        raise ValueError(f"engine: lora_thetas: {name} has no thetas of adapters")
    return replace(made, thetas=own)


def read_thetas(given: str) -> dict[str, float]:
    """By adapter, ms. Raises ValueError."""
    found = dict[str, float]()
    for part in given.split(",") if given.strip() else []:
        name, _, value = map(str.strip, part.partition("="))
        if not name or not value.isdecimal() or not int(value):
            raise ValueError(f"engine: lora_thetas: expected name=ms, whole numbers from 1, got {part.strip()!r}")
        if name in found:
            raise ValueError(f"engine: lora_thetas: {name!r} is there twice")
        found[name] = float(value)
    return found


def _pays(own: Sequence[ActiveRequest], state: EngineState) -> bool:
    """Whether merging these requests' adapter is worth the change, as far as that is known."""
    spared_ns = state.lora.products_ns(len(own))
    return spared_ns is None or spared_ns * max(each.left for each in own) > state.lora.switch_ns


def _most_wanted(waiting: Sequence[ActiveRequest], merged: Resident | None = None) -> Resident | None:
    """The adapter of most requests, of equally many the merged one; None if none has one."""
    counted = Counter(each.resident for each in waiting if each.resident is not None)
    return max(counted, key=lambda each: (counted[each], each is merged), default=None)
