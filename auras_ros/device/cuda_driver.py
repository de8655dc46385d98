"""CUDA's driver API through cuda-python, with its failures as DeviceErrors that name the function.

torch has no call for what partitions need: green contexts, and streams of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from auras_ros.device.lane import DeviceError

if TYPE_CHECKING:
    import torch

NON_BLOCKING = 1  # flag of a stream; flags are plain numbers here, as the bindings' enumerations have changed


class Share(NamedTuple):
    """Some SMs. open: makes them ready, and returns what makes streams on them. uncaptured: why a graph would not stay
    on them; empty if it does."""

    units: int
    open: Callable[[], Callable[[], torch.cuda.Stream]]
    uncaptured: str = ""


class CudaDriver:
    """The driver, for one GPU. names: the bindings. held: destroys what was made, in reverse order, when its owner
    closes it."""

    def __init__(self, device: torch.device, held: ExitStack) -> None:
        """Raises DeviceError without cuda-python."""
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise DeviceError(f"{device}: partitions need the package cuda-python ({error})") from error
        self.device, self.held, self.names = device, held, driver
        self.version = int(self.call("cuDriverGetVersion"))
        self.call("cuInit", 0)
        self.gpu = self.call("cuDeviceGet", device.index)

    def call(self, name: str, *arguments: Any) -> Any:
        """What the function returns beside its status. Raises DeviceError naming both."""
        try:
            status, *values = getattr(self.names, name)(*arguments)
        except (AttributeError, RuntimeError) as error:  # the bindings are older than the function, or the driver is
            raise DeviceError(f"{self.device}: {name}: {error}") from error
        if status != self.names.CUresult.CUDA_SUCCESS:
            raise DeviceError(f"{self.device}: {name}: {getattr(status, 'name', status)}")
        return values[0] if len(values) == 1 else values

    def stream(self, name: str, *arguments: Any) -> torch.cuda.Stream:
        """A new stream by this function. Its work is waited for before it is destroyed."""
        import torch

        handle = self.call(name, *arguments)
        self.held.callback(self.call, "cuStreamDestroy", handle)
        made: torch.cuda.Stream = torch.cuda.ExternalStream(int(handle), self.device)
        self.held.callback(made.synchronize)
        return made


def dotted(version: int) -> str:
    """As CUDA writes its version: 12050 is 12.5."""
    return f"{version // 1000}.{version % 1000 // 10}"


def leaves_nothing(device: torch.device, wanted: int, units: int) -> DeviceError:
    return DeviceError(f"{device}: a part of {wanted} of {units} SMs leaves nothing to one of the two")
