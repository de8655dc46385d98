"""Cut any module into consecutive stages of equal work, with the same output bit for bit (Auras section 5).

The module is traced once and its operations are cut into consecutive runs; a stage passes on every value that is still
needed. A cut is possible only where all of those are tensors that share no memory, because stages have fixed addresses.
What cannot be traced, run or cut is refused by name. Buffers, random number state and the example are not changed.
Nothing here schedules a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


class SliceError(ValueError):
    """A module that cannot be cut, and the obstacle in it."""


@contextmanager
def counting() -> Iterator[FlopCounterMode]:
    """torch's FLOP counter. Attention uses its math kernel meanwhile: the other kernels are not counted on every
    device, so that the same policy would be cut differently on a CPU and on a GPU."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counter


@dataclass(frozen=True)
class Slice:
    """A stage: `outs = stage(*ins)`. The first takes the module's inputs, the last returns its outputs as a tuple.

    name: the module and the first and last operation. cost: in FLOPs.
    """

    name: str
    body: fx.GraphModule
    cost: int

    def __call__(self, *ins: Tensor) -> tuple[Tensor, ...]:
        outs: tuple[Tensor, ...] = self.body(*ins)
        return outs


def slice_module(module: nn.Module, inputs: Sequence[Tensor], stages: int) -> list[Slice]:
    """`module` in `stages` stages whose largest cost is minimal. inputs: an example with the shapes of later inputs.

    An operation costs its FLOPs, by torch's counter; one without any counts as 1, so that no stage is empty. The stages
    share the module's parameters. Raises SliceError, naming the module and the obstacle.
    """
    if stages < 1:
        raise SliceError(f"{type(module).__name__}: {stages} stages")
    with torch.no_grad(), _unchanged(module):
        spine = _Spine(module, inputs)
    places = spine.places()
    if len(places) + 1 < stages:
        raise SliceError(f"{spine.name}: {stages} stages, but it can be cut into {len(places) + 1}{spine.obstacle}")
    runs = list(pairwise([0, *places, len(spine.nodes)]))
    costs = [sum(spine.cost[node] for node in spine.nodes[low:high]) for low, high in runs]
    return [
        spine.stage(runs[low][0], runs[high - 1][1], sum(costs[low:high]))
        for low, high in pairwise(split(costs, stages))
    ]


class _Spine:
    """A traced module: its operations in order, what each costs, and what is alive between them."""

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor]) -> None:
        self.name, self.obstacle = type(module).__name__, ""
        try:
            self._traced = fx.symbolic_trace(module)
        except Exception as error:  # tracing runs the module's own code, which may raise anything
            raise SliceError(f"{self.name}: cannot be traced: {type(error).__name__}: {error}") from error
        graph = self._traced.graph
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        if len(self._inputs) != len(inputs):
            names = ", ".join(node.name for node in self._inputs)
            raise SliceError(f"{self.name}: {len(inputs)} inputs, but it takes {len(self._inputs)}: {names}")
        self._results = _results(next(iter(reversed(graph.nodes))), self.name)
        watched = _CostInterpreter(self._traced)
        try:
            watched.run(*deepcopy([given.detach() for given in inputs]))
        except Exception as error:  # whatever the module's own code raises
            shapes = ", ".join(f"{str(given.dtype).removeprefix('torch.')} {[*given.shape]}" for given in inputs)
            what = f"'{watched.at}' fails on the example ({shapes}): {type(error).__name__}: {error}"
            raise SliceError(f"{self.name}: {what}") from error
        self.cost, self._values = watched.cost, watched.values

    def places(self) -> list[int]:
        """The operations before which a cut is possible."""
        found = []
        for at in range(1, len(self.nodes)):
            problem = self._problem(self.alive(at))
            if not problem:
                found.append(at)
            elif not self.obstacle:
                self.obstacle = f"; between {self.nodes[at - 1].name} and {self.nodes[at].name} {problem}"
        return found

    def _problem(self, alive: Iterable[fx.Node]) -> str:
        seen: dict[int, str] = {}
        for node in alive:
            value = self._values[node]
            if not isinstance(value, Tensor):
                return f"'{node.name}' is needed, and is a {type(value).__name__}, not a tensor"
            memory = value.untyped_storage().data_ptr()
            if memory in seen:
                return f"'{node.name}' and '{seen[memory]}' are needed, and share memory"
            seen[memory] = node.name
        return ""

    def alive(self, at: int) -> list[fx.Node]:
        """Values from before operation `at` that it or a later one needs, inputs included; parameters are not passed
        on."""
        if at == len(self.nodes):
            return self._results
        before = [*self._inputs, *(node for node in self.nodes[:at] if node.op != "get_attr")]
        later = {*self.nodes[at:]}
        return [node for node in before if node in self._results or any(user in later for user in node.users)]

    def stage(self, low: int, high: int, cost: int) -> Slice:
        """Operations low to high as a function of the values that are alive before them."""
        graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
        ins = self._inputs if low == 0 else self.alive(low)
        for node in ins:
            made[node] = graph.placeholder(node.name)

        def mapped(node: fx.Node) -> fx.Node:
            if node not in made:  # also a parameter that an earlier stage reads
                made[node] = graph.node_copy(node, mapped)
            return made[node]

        for node in self.nodes[low:high]:
            mapped(node)
        graph.output(tuple(mapped(node) for node in self.alive(high)))
        name = f"{self.name}[{self.nodes[low].name}..{self.nodes[high - 1].name}]"
        return Slice(name, fx.GraphModule(self._traced, graph), cost)


class _CostInterpreter(fx.Interpreter):
    """Runs a traced module and keeps each operation's result and cost."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced, garbage_collect_values=False)
        self.extra_traceback = False  # it would change error messages
        self.at = ""
        self.values: dict[fx.Node, Any] = {}
        self.cost: dict[fx.Node, int] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.at = n.name
        with counting() as counter:
            self.values[n] = super().run_node(n)
        self.cost[n] = max(1, int(counter.get_total_flops()))
        return self.values[n]


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Restore the module's buffers (in train mode norms update them) and the random number state afterwards."""
    kept = [(part, dict(part.named_buffers(recurse=False))) for part in module.modules()]
    values = [{name: buffer.clone() for name, buffer in buffers.items()} for _, buffers in kept]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for (part, buffers), before in zip(kept, values, strict=True):
            for name, buffer in buffers.items():
                if not torch.equal(buffer, before[name]):
                    buffer.copy_(before[name])
                setattr(part, name, buffer)


def _results(output: fx.Node, name: str) -> list[fx.Node]:
    """The nodes that the module returns: one, or a flat tuple or list of them."""
    returned = output.args[0]
    nodes = list(returned) if isinstance(returned, tuple | list) else [returned]
    if not nodes or not all(isinstance(node, fx.Node) for node in nodes):
        raise SliceError(f"{name}: returns {returned!r}, which is neither a tensor nor a flat tuple of tensors")
    return nodes  # type: ignore[return-value]


def split(costs: Sequence[int], groups: int) -> tuple[int, ...]:
    """Bounds 0, ..., len(costs) of `groups` consecutive runs, none empty, whose largest sum is minimal."""
    sums = [0, *accumulate(costs)]
    count = len(costs)
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, (0,))}  # (runs, blocks) -> sum, bounds
    for runs in range(1, groups + 1):
        for end in range(runs, count - (groups - runs) + 1):
            tries = (
                (max(best[runs - 1, start][0], sums[end] - sums[start]), (*best[runs - 1, start][1], end))
                for start in range(runs - 1, end)
                if (runs - 1, start) in best
            )
            best[runs, end] = min(tries)
    return best[groups, count][1]
