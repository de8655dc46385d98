"""Which way a server multiplies by, and in which type it keeps factors.

Guards: bfloat16's factors for a way that cannot read them; our kernels for rows that they do not multiply.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import LIBRARIES, RULE, rule_of_libraries
from auras_ros.kernels.lora_table_file import cpu_name, write_table
from auras_ros.kernels.lora_ways import COMPILED, WAYS
from auras_ros.lora.runtime import LoraRuntime
from auras_ros.models.paged_kv import PagedKVCache
from tests.lora.decoders import RANK, Decoder, adapter

GAP = LoraShape("prefill", 4, 8, 64, 64, 1, 2)  # a shape
NO_TARGETS = cast(Any, None)  # nothing is added from a folder


@pytest.mark.parametrize(
    ("dtype", "ways", "chooser", "kept"),
    [
        (torch.float32, "", RULE, torch.bfloat16),
        (torch.float32, "segmented", None, torch.float32),
        (torch.float32, "compiled", None, torch.bfloat16),
        (torch.bfloat16, "", LIBRARIES, torch.bfloat16),
    ],
)
def test_halves_are_for_our_kernels_and_these_for_float32(
    dtype: torch.dtype, ways: str, chooser: object, kept: torch.dtype
) -> None:
    pytest.importorskip("numba")
    decoder = Decoder(dtype)
    store = PagedKVCache(decoder.config.layers, 64, 8, decoder.config.kv_heads, 12, dtype=dtype).store
    runtime = LoraRuntime(decoder.llama, store, NO_TARGETS, 1, RANK, ways)
    assert chooser is None or runtime._chooser is chooser
    own = adapter(decoder, RANK, 0)
    for each in own.factors.values():
        for part in each:
            part.copy_(part.bfloat16())
    assert {factors.a.dtype for factors in runtime.slots.write(0, own).decoder.values()} == {kept}


@pytest.mark.parametrize(("dtype", "otherwise"), [(torch.float32, COMPILED), (torch.bfloat16, rule_of_libraries(GAP))])
def test_a_table_chooses_and_where_it_has_nothing_the_rule_of_its_type(
    dtype: torch.dtype, otherwise: str, tmp_path: Path
) -> None:
    """Beside ways that read no bfloat16, factors of a float32 model stay as it is."""
    pytest.importorskip("numba")
    write_table(tmp_path / "ways.json", cpu_name(), {LoraShape("decode", 4, 8, 64, 64, 1, 2): "padded"})
    decoder = Decoder(dtype)
    store = PagedKVCache(decoder.config.layers, 64, 8, decoder.config.kv_heads, 12, dtype=dtype).store
    runtime = LoraRuntime(decoder.llama, store, NO_TARGETS, 1, RANK, str(tmp_path / "ways.json"))
    assert runtime._chooser.choose(LoraShape("decode", 3, 8, 32, 64, 1, 2)) is WAYS["padded"]
    assert runtime._chooser.choose(GAP) is WAYS[otherwise]
    resident = runtime.slots.write(0, adapter(decoder, RANK, 0))
    assert {factors.a.dtype for factors in resident.decoder.values()} == {dtype}


def test_what_was_made_of_a_decodes_rows_is_kept_while_they_stay() -> None:
    decoder = Decoder()
    store = PagedKVCache(decoder.config.layers, 64, 8, decoder.config.kv_heads, 12).store
    runtime = LoraRuntime(decoder.llama, store, NO_TARGETS, 2, RANK)
    first, second = (runtime.slots.write(slot, adapter(decoder, RANK, slot)) for slot in range(2))
    kept = runtime.adapt([first, second], [1, 1], keep=True)
    assert kept is not None
    assert runtime.adapt([first, second], [1, 1], keep=True) is kept
    prefill = runtime.adapt([first, second], [1, 1])
    assert prefill is not kept  # it may run beside the decode
    assert runtime.adapt([first, second], [1, 1], keep=True) is kept
    runtime.enter(first)
    mixture = runtime.adapt([first, second], [1, 1], keep=True)
    assert mixture is not kept
    assert mixture is not None
    assert runtime.adapt([first, first], [1, 1], keep=True) is None
    assert runtime.adapt([second, second], [1, 1], keep=True) is not mixture
    runtime.enter(None)
    assert runtime.adapt([first, second], [1, 1], keep=True) is not kept  # one batch is kept


def test_what_is_no_way_and_no_file_is_named_with_its_option() -> None:
    decoder = Decoder()
    store = PagedKVCache(decoder.config.layers, 64, 8, decoder.config.kv_heads, 12).store
    with pytest.raises(ValueError, match="engine: lora_ways: 'segmentd' is no file, and no way: segmented, "):
        LoraRuntime(decoder.llama, store, NO_TARGETS, 1, RANK, "segmentd")


def test_without_numba_a_server_says_what_the_way_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auras_ros.kernels.lora_ways.WAYS", {})
    monkeypatch.setattr("auras_ros.lora.runtime.WAYS", {})
    decoder = Decoder()
    store = PagedKVCache(decoder.config.layers, 64, 8, decoder.config.kv_heads, 12).store
    with pytest.raises(ValueError, match="engine: lora_ways: way 'compiled' needs Numba"):
        LoraRuntime(decoder.llama, store, NO_TARGETS, 1, RANK, "compiled")
