"""Prints how long one product takes in each form of a linear layer: `python -m tests.models.linear_times`. One core."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from auras_ros.models.linear import AnyLinear, Int8Linear, Linear, PackedLinear

LARGE, SMALL, REPEATS = (9728, 896), (512, 128), 30
ROWS = (1, 8, 32, 200)


def smallest_us(call: Callable[[], Tensor]) -> float:
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e6 * min(found)


def forms(out: int, width: int) -> Mapping[str, tuple[AnyLinear, torch.dtype]]:
    weight = torch.randn(out, width)
    return {
        "float32, MKL": (Linear(weight, None), torch.float32),
        "float32, oneDNN's blocks": (PackedLinear(weight, None), torch.float32),
        "bfloat16, oneDNN's blocks": (PackedLinear(weight.bfloat16(), None), torch.bfloat16),
        "int8": (Int8Linear(weight, None), torch.float32),
    }


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    for out, width in (LARGE, SMALL):
        print(f"\n| weight {out:,} x {width} | " + " | ".join(f"{rows} rows" for rows in ROWS) + " |")
        print("|---|" + "---|" * len(ROWS))
        for name, (form, dtype) in forms(out, width).items():
            times = [smallest_us(partial(form, torch.randn(rows, width).to(dtype))) for rows in ROWS]
            print(f"| {name} | " + " | ".join(f"{each:,.0f}" for each in times) + " |")


if __name__ == "__main__":
    main()
