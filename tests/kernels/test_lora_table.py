"""Which way a shape gets: from the table, by its nearest shape, or by the rule; and the table as a file.

Guards: a shape of another phase taken for near; a way that is gone; one machine's table used on another; a file that is
no table taken for an empty one; another device's table that is lost when one is written.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from auras_ros.kernels.grouped_lora import FactorSet, RowGroup, RowGroups, add_lora_
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import FEW_TOKENS, LIBRARIES, RULE, WayTable
from auras_ros.kernels.lora_table import rule as rule_of_ways
from auras_ros.kernels.lora_table_file import cpu_name, gpu_name, read_table, read_tilings, read_ways, write_table
from auras_ros.kernels.lora_tilings import EXPAND, SHRINK, Tiling, TilingTable, rule, tiling
from auras_ros.kernels.lora_ways import WAYS
from tests.kernels.test_grouped_lora import factors

ONE = LoraShape("decode", 4, 16, 256, 256, 1, 4)
ENTRIES = {
    ONE: "joint",
    ONE._replace(tokens=64): "padded",
    ONE._replace(phase="prefill", tokens=64): "adapter",
    ONE._replace(phase="prefill", tokens=1024, rank=64): "blocked",
}


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        (ONE, "joint"),
        (ONE._replace(tokens=15), "joint"),
        (ONE._replace(tokens=17), "padded"),
        (ONE._replace(tokens=3000, width=300, rank=8), "padded"),
        (ONE._replace(phase="prefill", tokens=100), "adapter"),
        (ONE._replace(phase="prefill", tokens=700), "blocked"),
        (ONE._replace(parts=3), "compiled"),
        (ONE._replace(parts=3, tokens=1024), "compiled-rows"),
    ],
)
def test_the_nearest_shape_decides_and_the_rule_where_there_is_none(shape: LoraShape, way: str) -> None:
    if way not in WAYS:
        pytest.skip(f"{way}: needs numba")
    table = WayTable(ENTRIES)
    for _ in range(2):
        assert table.name(shape) == way
        assert table.choose(shape) is WAYS[way]


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        (ONE, "joint"),
        (ONE._replace(width=1024), "segmented"),  # adapters that are long to join
        (ONE._replace(width=1 << 20, adapters=1), "joint"),  # nothing is joined
        (ONE._replace(tokens=FEW_TOKENS + 1), "segmented"),
        (ONE._replace(tokens=1024), "mixed"),
    ],
)
def test_without_numba_the_rule_knows_no_kernels_of_ours(
    shape: LoraShape, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(WAYS, "compiled", raising=False)
    assert rule_of_ways(shape) == LIBRARIES.name(shape) == way
    with pytest.raises(ValueError, match="way 'compiled' needs Numba"):
        WayTable({ONE: "compiled"})


def test_a_batch_looks_up_once_for_all_layers_of_a_kind() -> None:
    asked = list[LoraShape]()

    class Asking(WayTable):
        def choose(self, shape: LoraShape):
            asked.append(shape)
            return super().choose(shape)

    rows, chooser = RowGroups([RowGroup(0, 0, 1), RowGroup(1, 1, 3, -1)], torch.tensor([2, 0, 1])), Asking({})
    for seed in range(3):
        add_lora_(torch.zeros(3, 8), torch.zeros(3, 16), rows, FactorSet({0: factors(2, seed), 1: factors(4, seed)}),
                  (0, 8), chooser)  # fmt: skip
    assert asked == [LoraShape("decode", 3, 4, 16, 8, 1, 2)]
    assert RULE.name(asked[0]) == rule_of_ways(asked[0])


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="way 'magic' is not known; known: segmented"):
        WayTable({ONE: "magic"})


def test_a_file_has_the_tables_of_several_devices(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ways.json"
    write_table(path, cpu_name(), {ONE: "padded"}, search_s=1.0)
    write_table(path, gpu_name("NVIDIA H100", "3.7"), {ONE._replace(phase=SHRINK): "16x16x64 w4 s3 k2"})
    write_table(path, cpu_name(), ENTRIES, search_s=2.0)
    assert read_table(path, cpu_name()) == ENTRIES
    assert read_ways(path).name(ONE) == "joint"
    assert read_table(path, "another") == {}
    assert not caplog.records
    assert read_ways(path, threads=99).name(ONE._replace(tokens=65)) == rule_of_ways(ONE._replace(tokens=65))
    assert f"{path} has no table of {cpu_name(99)}: a rule chooses" in caplog.text
    assert list(read_table(path, "NVIDIA H100, triton 3.7").values()) == ["16x16x64 w4 s3 k2"]
    assert "1 thread" in cpu_name(1)
    assert "2 threads" in cpu_name(2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "devices": {}}',
        '{"version": 1}',
        '{"version": 1, "devices": {"HERE": {"entries": {"decode 1 2": "joint"}}}}',
        '{"version": 1, "devices": {"HERE": {"entries": {"decode 1 2 3 4 1 0": "joint"}}}}',
        '{"version": 1, "devices": {"HERE": {"entries": {"decode 1 2 3 4 1 1": "magic"}}}}',
        '{"version": 1, "devices": {"HERE": []}}',
    ],
)
def test_what_is_no_table_is_refused_with_the_files_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ways.json"
    path.write_text(text.replace("HERE", cpu_name()))
    with pytest.raises(ValueError, match=r"ways\.json"):
        read_ways(path)


def test_a_gpus_table_is_read_and_no_other_takes_its_place(tmp_path: Path) -> None:
    path, shape = tmp_path / "tilings.json", ONE._replace(phase=SHRINK)
    write_table(path, gpu_name("NVIDIA H100", "3.7"), {shape: "16x16x64 w4 s3 k2"})
    write_table(path, gpu_name("NVIDIA H200", "3.7"), {shape: "magic"})
    assert read_tilings(path, "NVIDIA H100, triton 3.7").choose(shape) == Tiling(16, 16, 64, 4, 3, 2)
    for device, said in (("NVIDIA H100, triton 3.8", "has no table of NVIDIA H100, triton 3.8"), (
        "NVIDIA H200, triton 3.7", "'magic' is no tiling")):  # fmt: skip
        with pytest.raises(ValueError, match=rf"tilings\.json.*{said}"):
            read_tilings(path, device)


def test_tilings_are_chosen_in_the_same_way() -> None:
    shape = ONE._replace(phase=SHRINK, tokens=64, width=4096)
    table = TilingTable({shape: "64x32x32 w8 s3 k4"})
    assert table.choose(shape._replace(tokens=50)) == Tiling(64, 32, 32, 8, 3, 4)
    assert table.choose(shape._replace(phase=EXPAND)) == rule(shape._replace(phase=EXPAND))
    assert tiling(Tiling(64, 32, 32, 8, 3, 4).name) == Tiling(64, 32, 32, 8, 3, 4)
    for bad in ("64x32 w8", "8x32x32 w4 s2 k1", "48x32x32 w4 s2 k1"):
        with pytest.raises(ValueError, match="is no tiling"):
            TilingTable({shape: bad})


def test_the_rule_divides_long_sums_of_few_programs() -> None:
    shape = LoraShape(SHRINK, 256, 32, 4096, 32, 1, 1)
    assert rule(shape).split_k > 1
    assert rule(shape._replace(tokens=1 << 16, adapters=8)).split_k == 1
    assert rule(shape._replace(width=256)).split_k == 1
