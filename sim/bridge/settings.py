"""The parameters of a bridge: those of every world, and beside them the options of its own world."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import ClassVar

from auras_ros.parameters import ParameterError, parameter
from auras_ros.repeated_lines import log_every_s
from auras_ros.sim.world import Sim, World


@dataclass(frozen=True)
class BridgeSettings:
    """What the bridge of every world can be told; `bridge_settings` adds the world's options. Raises ParameterError."""

    sim: ClassVar[Sim]

    seed: int = parameter(0, "seed of the first episode; each next one counts up by one", 0, 2**31 - 1)
    max_steps: int = parameter(300, "control steps after which an episode is done", 1, 1_000_000)
    paused: bool = parameter(
        False, "take a step for each action, and wait for the next: the same actions, the same episode"
    )
    auto_reset: bool = parameter(True, "start the next episode by itself, show_s after one is done")
    show_s: float = parameter(1.0, "how long an episode that is done stands before the next one", 0.0, 3600.0)
    action_timeout_ms: int = parameter(500, "an older action still goes on, but is counted", 1, 60_000)
    viewer_px: int = parameter(0, "height of the images on camera/viewer, px; 0 publishes none", 0, 2048)
    compression: str = parameter("jpeg", "of the compressed cameras: jpeg (quality 95) or png")
    publish_clock: bool = parameter(False, "be the source of /clock; stamps are then simulated time")
    log_every_s: float = log_every_s()
    shift_ms: float = parameter(0.0, "delay of control steps and images; may be set while it runs", 0.0, 99.0)

    def __post_init__(self) -> None:
        world = self._given().world
        if 0 < self.viewer_px < 16:
            raise ParameterError(f"{world.name}: viewer_px: must be 0 or in [16, 2048], got {self.viewer_px}")
        if self.compression not in ("jpeg", "png"):
            raise ParameterError(f"{world.name}: compression: must be jpeg or png, got {self.compression!r}")
        if self.shift_ms >= world.control_dt_ms:
            dt_ms = world.control_dt_ms
            raise ParameterError(f"{world.name}: shift_ms: must be below a step of {dt_ms} ms, got {self.shift_ms:g}")

    def _given(self) -> Sim:
        return self.sim.given(**{each.name: getattr(self, each.name) for each in fields(self.sim.options)})

    def make(self) -> World:
        """The world with its options. Raises ModuleNotFoundError if its simulator is not installed."""
        return self._given().make()


def bridge_settings(sim: Sim) -> type[BridgeSettings]:
    """The dataclass of its parameters; the defaults of the world's options are those of `sim`."""
    own = [
        (each.name, each.type, field(default=getattr(sim.options, each.name), metadata=each.metadata))
        for each in fields(sim.options)
    ]
    return make_dataclass(BridgeSettings.__name__, own, bases=(BridgeSettings,), namespace={"sim": sim}, frozen=True)
