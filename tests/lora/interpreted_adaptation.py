"""`TRITON_INTERPRET=1 python -m tests.lora.interpreted_adaptation`: a decoder with the adapters of a batch by Triton's
kernels on a CPU, a line with the largest difference from a CPU's own way for each batch. A process of its own, because
Triton decides at import."""

from __future__ import annotations

import json

import torch

from auras_ros.kernels.grouped_lora_triton import TritonLora
from auras_ros.lora.adaptation import Adaptation, Owner, row_groups, site_bounds
from auras_ros.lora.kernel_adaptation import KernelAdapters
from tests.lora.decoders import RANK, Decoder

IDS = (3, 1, 4, 1, 5, 9)
BATCHES: dict[str, tuple[list[Owner], list[int], Owner]] = {
    "unmerged": ([0, 1, None], [2, 3, 1], None),
    "apart": ([0, 1, 0, 2, None, 1], [1] * 6, None),
    "mixture": ([0, 1, 0, 2, None, 1], [1] * 6, 0),
    "mixture, in runs": ([1, 0, None], [2, 2, 2], 0),
    "another rank": ([0, 1, 0, 2, None, 2], [1] * 6, None),
}


def main() -> None:
    decoder, found = Decoder(kernels=True), dict[str, float]()
    for slot, rank in enumerate((RANK, 3, 1)):
        decoder.put(slot, rank, slot)
    bounds, kernels = site_bounds(decoder.all_sites), KernelAdapters(decoder.slots, decoder.places, TritonLora)
    with torch.inference_mode():
        for name, (owners, counts, merged) in BATCHES.items():
            if name == "another rank":
                decoder.slots.withdraw(2)
                decoder.put(2, RANK - 1, 7)
            rows = row_groups(owners, counts, merged)
            assert rows is not None
            wanted = decoder.hidden(IDS, Adaptation(rows, decoder.slots.table, bounds))
            for _ in range(2):  # as a captured one, which keeps its index
                made = decoder.hidden(IDS, kernels.adaptation(rows, len(IDS), keep=True))
            found[name] = float((made - wanted).abs().max())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
