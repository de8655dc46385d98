"""The resource use of a configured policy: time to configure, where its weights are, which stages are not captured.

For the log and for diagnostics. It decides nothing and measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from auras_ros.device import MB, in_words
from auras_ros.loading.pipeline import Pipeline


def uncaptured(pipelines: Sequence[Pipeline]) -> str:
    """The stages of all plans that are not captured, with the reasons; empty if there are none."""
    return in_words({stage: reasons for each in pipelines for stage, reasons in each.uncaptured.items()})


def footprint(pipelines: Sequence[Pipeline], configure_ms: float) -> dict[str, object]:
    """The values for diagnostics. device_mb: GPU memory in tensors and in total, graphs included; only with a GPU.
    offloaded_mb and uncaptured: only if there are any."""
    placed = pipelines[0].placed  # plans share their networks
    values: dict[str, object] = {"configure_ms": f"{configure_ms:.0f}", "weights_mb": f"{placed.resident / MB:.1f}"}
    if placed.modules:
        values["offloaded_mb"] = f"{placed.offloaded / MB:.1f}"
    tensors, taken = pipelines[0].device_bytes()
    if taken:
        values["device_mb"] = f"{tensors / MB:.1f} in tensors, {taken / MB:.1f} reserved"
    if said := uncaptured(pipelines):
        values["uncaptured"] = said
    return values


def in_a_line(values: dict[str, object]) -> str:
    """The values as one line for the log."""
    return ", ".join(f"{name} {value}" for name, value in values.items() if name != "uncaptured")
