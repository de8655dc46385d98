"""The weights of a module as units that are offloaded together, and which of them stay on a device of limited memory.

A unit is a module with weights of its own, copied in when its forward begins and freed when it ends. A unit whose
weights are read outside its forward, or that no run has called, cannot be offloaded. Nothing here moves anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from auras_ros.device.lane import DeviceError

if TYPE_CHECKING:
    from torch import nn

MB = 1_000_000


class Use(NamedTuple):
    """A use of the module, and how often one request makes it."""

    run: Callable[[], object]
    times: int = 1


@dataclass
class Unit:
    """Modules that share weights, by name; `size`: bytes, each weight once. calls: made by one request; order: of the
    first call. moves: whether it can be offloaded, as only their own module's forward reads its weights."""

    modules: dict[str, nn.Module]
    weights: dict[int, int] = field(default_factory=dict)
    calls: int = 0
    order: int = 0
    moves: bool = True

    @property
    def size(self) -> int:
        return sum(self.weights.values())

    @property
    def name(self) -> str:
        return next(iter(self.modules))


class Split(NamedTuple):
    """offloaded: the units that are offloaded, in the module's order. resident: bytes that stay; largest: most bytes
    that are copied in at a time."""

    offloaded: list[Unit]
    resident: int
    largest: int


def survey(module: nn.Module, uses: Sequence[Use]) -> list[Unit]:
    """The units of `module`, as its uses show them."""
    units = _units(module)
    by_module = {id(part): unit for unit in units for part in unit.modules.values()}
    calls, outside = dict[int, int](), set[int]()
    for use in uses:
        with _watching(module, outside) as called:
            use.run()
        for part, count in called.items():
            calls[part] = calls.get(part, 0) + count * use.times
    for place, part in enumerate(calls):
        if part in by_module:
            by_module[part].calls += calls[part]
            by_module[part].order = by_module[part].order or place + 1
    for unit in units:
        called_all = all(id(part) in calls for part in unit.modules.values())
        unit.moves = called_all and outside.isdisjoint(unit.weights)
    return units


def least(module: nn.Module, units: Sequence[Unit]) -> tuple[int, int, str]:
    """The least memory: (bytes that cannot be offloaded, bytes that are in at a time if all else is, the name of the
    largest module)."""
    buffers = {id(each): each.nbytes for each in module.buffers()}
    resident, room = sum(buffers.values()) + sum(unit.size for unit in units if not unit.moves), _room(units)
    name = max(room, key=lambda each: room[each], default="")
    return resident, room.get(name, 0), name


def split(module: nn.Module, units: Sequence[Unit], limit: int) -> Split:
    """Keep what is called most often, and among equals what was called first, within `limit` bytes. Room is left for
    the largest of the rest, which is copied in when it runs. Raises DeviceError, naming it, if there is no room."""
    resident, most, largest = least(module, units)
    going, room = [unit for unit in units if unit.moves], _room(units)
    if resident + sum(unit.size for unit in going) <= limit:
        return Split([], resident + sum(unit.size for unit in going), 0)
    if resident + most > limit:
        raise DeviceError(
            f"max_memory_mb: {limit / MB:g}, but {(resident + most) / MB:.4g} MB are needed: {resident / MB:.4g} MB "
            f"that cannot be offloaded, and {most / MB:.4g} MB for the largest module that can, '{largest}'"
        )
    by_room, gone = sorted(going, key=lambda unit: -room[unit.name]), {unit.name for unit in going}
    for unit in sorted(going, key=lambda unit: (-unit.calls, unit.order)):
        rest = next((room[each.name] for each in by_room if each.name in gone and each is not unit), 0)
        if resident + unit.size + rest <= limit:
            resident += unit.size
            gone.remove(unit.name)
    offloaded = [unit for unit in going if unit.name in gone]
    return Split(offloaded, resident, max(room[unit.name] for unit in offloaded))


def _units(module: nn.Module) -> list[Unit]:
    """One unit for each module with weights of its own; modules that share a weight are one unit."""
    units: list[Unit] = []
    of_weight: dict[int, Unit] = {}
    for name, part in module.named_modules():
        own = {id(each): each.nbytes for each in part.parameters(recurse=False)}
        if not own:
            continue
        made = Unit({name: part}, own)
        for other in {id(of_weight[each]): of_weight[each] for each in own if each in of_weight}.values():
            made = Unit({**other.modules, **made.modules}, {**other.weights, **made.weights})
            units.remove(other)
        units.append(made)
        of_weight |= dict.fromkeys(made.weights, made)
    return units


def _room(units: Sequence[Unit]) -> dict[str, int]:
    """Unit's name -> bytes that are in while one of its modules runs, including those of modules around it."""
    own = {
        name: sum(each.nbytes for each in part.parameters(recurse=False))
        for unit in units
        if unit.moves
        for name, part in unit.modules.items()
    }
    around = {name: size + sum(own.get(outer, 0) for outer in _outer(name)) for name, size in own.items()}
    return {unit.name: max(around[name] for name in unit.modules) for unit in units if unit.moves}


def _outer(name: str) -> Iterator[str]:
    """The names of the modules that contain this one."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(len(parts)) if name)


@contextmanager
def _watching(module: nn.Module, outside: set[int]) -> Iterator[dict[int, int]]:
    """Counts the calls of each part's forward meanwhile, by its id, in the order of the first calls. The ids of weights
    that are read while their own module's forward does not run are added to `outside`."""
    from torch.overrides import TorchFunctionMode

    calls, under_way = dict[int, int](), dict[int, int]()
    owners: dict[int, list[int]] = {}
    for part in module.modules():
        for weight in part.parameters(recurse=False):
            owners.setdefault(id(weight), []).append(id(part))

    class Reads(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for each in _flat((args, kwargs or {})):
                if id(each) in owners and not any(under_way.get(owner) for owner in owners[id(each)]):
                    outside.add(id(each))
            return func(*args, **(kwargs or {}))

    def enter(part: nn.Module, _: Any) -> None:
        calls[id(part)] = calls.get(id(part), 0) + 1
        under_way[id(part)] = under_way.get(id(part), 0) + 1

    def leave(part: nn.Module, _: Any, __: Any) -> None:
        under_way[id(part)] -= 1

    hooks = [part.register_forward_pre_hook(enter) for part in module.modules()]
    hooks += [part.register_forward_hook(leave, always_call=True) for part in module.modules()]
    try:
        with Reads():
            yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _flat(each)
    else:
        yield value
