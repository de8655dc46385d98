"""What each layer calls: the operations that Nova fuses (IV), each in one place and beside a plain reference in the
tests.

Kernels know no request, node or clock: tensors in, tensors out.
"""

from __future__ import annotations

from importlib.util import find_spec

NUMBA = find_spec("numba") is not None  # for kernels of our own on a CPU


def prepare() -> None:
    """Compiles what would else be compiled while a request waits: three seconds."""
    if NUMBA:
        from auras_ros.kernels import lora_compiled, weights_compiled  # noqa: F401
