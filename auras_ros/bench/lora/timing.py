"""Windows of a case's contenders: how many layers a second, and how long each took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from auras_ros.bench.lora.shapes import CaseRun
from auras_ros.kernels.lora_table import WayChooser
from auras_ros.measure.window import Length

WARM_UPS = 3


class CaseWindows:
    """`rate` and `prepare` are what `measure.rounds.Rounds` asks for. layer_us: of each contender, of a layer in every
    run of every window."""

    def __init__(self, run: CaseRun, contenders: Mapping[str, WayChooser]) -> None:
        self._run, self._contenders = run, contenders
        self.layer_us: defaultdict[str, list[float]] = defaultdict(list)

    def prepare(self, name: str) -> None:
        """Makes the copies of the factors too. Raises RuntimeError if the contender is not equal to the reference."""
        chooser, reference = self._contenders[name], self._contenders["segmented"]
        if (apart := self._run.check(reference, chooser)) > 1e-4:
            raise RuntimeError(f"differs from the reference by {apart:.1e}")
        for _ in range(WARM_UPS):
            self._run.forward(chooser)

    def rate(self, name: str, length: Length) -> float:
        """Layers per second, by the lower quartile of the window's runs: what else the machine does interrupts some."""
        chooser, layers, took = self._contenders[name], len(self._run.layers), list[float]()
        self._run.forward(chooser)  # what the one before left in the caches is not this one's
        end_ns = time.perf_counter_ns() + round(1e9 * min(length.seconds, length.limit_s))
        now_ns = 0
        while now_ns < end_ns or len(took) < length.chunks:
            began_ns = time.perf_counter_ns()
            self._run.forward(chooser)
            now_ns = time.perf_counter_ns()
            took.append((now_ns - began_ns) / 1e3 / layers)
        self.layer_us[name] += took
        return 1e6 / float(np.percentile(took, 25))
