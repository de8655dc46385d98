"""The interface between what is computed and where: a stage is captured for a lane and launched on it; a launch returns
a mark.

The CPU, the GPU and the null device of the tests (tests/device/null_device.py) all implement it. Nothing in this file
runs anything.

What every device promises:
- Stages on a lane run one after another in the order of their launches; lanes run side by side.
- A launch starts after its `after` marks, and after everything that its thread has done to the buffers before.
- A stage runs without autograd. It takes no arguments and returns nothing: its inputs and results are buffers on
  `Device.tensors` that are made outside it and live as long as it does. What else it allocates is freed when it ends.
- A stage that raises does not stop its lane. A caller that waits for its mark gets the exception. So does one that
  waits for a launch that came `after` it, which then does not run. A failure that nobody waited for is raised by
  `close`.
- A body that calls `uncaptured.cannot_capture` is run at every launch instead of being captured: with the same lane,
  marks and results, but on a GPU the launching thread is busy until all operations are queued.
- Marks stay valid for ever. A lane holds a bounded number of launches; one more waits for the oldest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from auras_ros.device.uncaptured import Reasons

if TYPE_CHECKING:
    import torch


class DeviceError(RuntimeError):
    """A device, lane or stage is not available or is used wrongly; the message names it."""


class FolderError(DeviceError):
    """A folder for weights cannot be used. The message says what was found there: nodes do not tell it to others."""


class Mark(Protocol):
    """The completion of one launch."""

    def wait(self) -> None:
        """Block the calling thread until the launch has ended. Raises what its stage raised."""
        ...

    def follow(self) -> None:
        """What the calling thread does to buffers from now on comes after the launch. On a CPU that is `wait`; on a GPU
        its current stream waits, and the thread does not. Raises what its stage raised."""
        ...

    def done(self) -> bool:
        """Whether the launch has ended, successfully or not; never blocks."""
        ...


class Stage(Protocol):
    """A captured body: fixed shapes, fixed addresses, no arguments."""

    @property
    def name(self) -> str: ...

    @property
    def captured(self) -> bool:
        """False if the body has called `cannot_capture`; on a CPU that is known after its first run."""
        ...


class Lane(Protocol):
    """One stream or thread."""

    @property
    def name(self) -> str: ...

    def launch(self, stage: Stage, after: Sequence[Mark] = ()) -> Mark:
        """Run `stage`, captured for this lane, once, after the given marks. Raises DeviceError, but no exception of the
        stage."""
        ...


class Device(Protocol):
    """Makes lanes and captures stages. `close` ends both."""

    @property
    def tensors(self) -> torch.device:
        """Where the stages' buffers live."""
        ...

    @property
    def uncaptured(self) -> Mapping[str, Reasons]:
        """The stages that are not captured, by name, with the reasons (`Stage.captured`)."""
        ...

    def lane(self, name: str, cores: Sequence[int] | None = None, threads: int | None = None) -> Lane:
        """A new lane. `cores`: core numbers of the host; `threads`: intra-op threads; only a CPU device uses them.
        Raises DeviceError, naming the lane and the option."""
        ...

    def capture(self, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        """Make a stage for `lane`. A GPU runs the body a few times: fill the buffers afterwards. Raises DeviceError."""
        ...

    def close(self) -> None:
        """Finish what was launched and release everything. Raises DeviceError if a stage failed and nobody waited for
        it."""
        ...


def launches_ahead(device: Device) -> bool:
    """Whether a launch returns while its stage still runs, so that the next launch overlaps with it (Auras 5). Not on a
    CPU: there a launch may be the run itself, and times are measured between launches."""
    return device.tensors.type != "cpu"
