"""The Triton kernels compiled ahead for a GPU that need not be there, and what the compiled code takes of it.

A tiling that asks for more registers than a thread has spills them into memory, and one that asks for more shared
memory than a multiprocessor has cannot start at all: both are seen here, before any GPU is. Triton brings the assembler
and the disassembler; it is imported when something is compiled.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from itertools import product, starmap
from pathlib import Path
from typing import NamedTuple

from auras_ros.kernels.lora_tilings import EXPAND, SHRINK, Tiling

SHARED_KIB = {80: 163, 90: 227, 100: 227}  # shared memory that one block may have, by compute capability
REGISTERS = 255  # that a thread may have
STACK = 16  # bytes of a thread that may be in memory: four registers that are put aside outside of the loop
GROUPS = 32
POINTERS = {
    "x": "*{dtype}", "y": "*{dtype}", "inner": "*fp32", "order": "*i32", "begins": "*i32", "ends": "*i32",
    "slots": "*i32", "a_table": "*i64", "b_table": "*i64", "ranks": "*i32", "bounds": "*i32",
}  # fmt: skip


class Specialization(NamedTuple):
    """What Triton compiles a kernel for, beside its tiling. aligned: of `LayerPointers`. sign: of the groups; shrink
    has none. divisible: whether all addresses, sizes and strides are multiples of 16, or none: a launch looks at
    each. Those that are not come from a width or a largest rank that is not, and from the lists of two groups."""

    aligned: bool = False
    sign: int = 1
    divisible: bool = True


ENGINE = {
    phase: tuple(starmap(Specialization, product((True, False), signs, (True, False))))
    for phase, signs in ((SHRINK, (1,)), (EXPAND, (1, -1)))
}
"""Those of `KernelAdapters`, by phase: a layer is aligned if its width is."""


class KernelResources(NamedTuple):
    """Of a compiled kernel. registers: of a thread. shared: bytes of a block. local, stack: bytes of a
    thread that are in memory, where registers are spilled."""

    registers: int
    shared: int
    local: int
    stack: int

    def starts(self, capability: int) -> bool:
        """Whether a block can start."""
        return self.registers <= REGISTERS and self.shared <= 1024 * SHARED_KIB[capability]

    def fits(self, capability: int) -> bool:
        """Next to nothing is spilled, and a block can start."""
        return self.local == 0 and self.stack <= STACK and self.starts(capability)


def compiled(
    phase: str, tiling: Tiling, capability: int, launch: Specialization, dtype: str = "fp16", parts: int = 1
) -> KernelResources:
    """phase: shrink or expand. capability: 80, 90 or 100. dtype: fp16 or bf16. Raises ImportError without Triton,
    RuntimeError if it does not compile."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from auras_ros.kernels import grouped_lora_triton as kernels

    kernel = kernels.shrink_kernel if phase == SHRINK else kernels.expand_kernel
    fixed = {
        "PARTS": parts, "GROUPS": GROUPS, "ALIGNED": launch.aligned, "SIGN": launch.sign,
        "BLOCK_M": tiling.block_m, "BLOCK_N": tiling.block_n, "BLOCK_K": tiling.block_k, "SPLIT_K": tiling.split_k,
    }  # fmt: skip
    names = list(kernel.arg_names)
    fixed = {name: value for name, value in fixed.items() if name in names}
    kinds = {name: POINTERS.get(name, "i32").format(dtype=dtype) for name in names if name not in fixed}
    looked_at = [name for name in kinds if not kernel.params[names.index(name)].do_not_specialize]
    known = {(names.index(name),): [["tt.divisibility", 16]] for name in looked_at if launch.divisible}
    signature = {name: kinds.get(name, "constexpr") for name in names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=fixed, attrs=known)
    options = {"num_warps": tiling.warps, "num_stages": tiling.stages}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return _resources(made.asm["cubin"], made.metadata.shared)


def _resources(binary: bytes, shared: int) -> KernelResources:
    """shared: what a launch asks for, beside what the binary has by itself."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(disassembler()), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {name: int(number) for name, number in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", said)}
    if not found:
        raise RuntimeError(f"cuobjdump said nothing of resources: {said[:200]}")
    return KernelResources(found["REG"], max(shared, found["SHARED"]), found["LOCAL"], found["STACK"])


def disassembler() -> Path:
    """cuobjdump as Triton brings it."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not path.is_file():
        raise RuntimeError(f"triton without its disassembler: no {path}")
    return path
