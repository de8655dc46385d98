"""`auras bench` of `lora-switch`, `lora-swap`, `lora-heads`, `lora-modes`, `lora-streams` and `lora-load`: short runs,
and their arithmetic by hand.

Guards: a floor of another round; an answer of another adapter that nobody counts; a head beside another prompt's
answer; a gain over the worst system instead of the best.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.bench.lora import load, modes, streams, swap, switch
from auras_ros.bench.lora.adapter_folders import write_adapters
from auras_ros.bench.lora.trace import LoraTrace
from auras_ros.bench.peers_vlm.client import Load
from auras_ros.bench.peers_vlm.contest import CLOSED, ModelWindows, Window
from auras_ros.bench.peers_vlm.stream import StreamedAnswer
from auras_ros.bench.peers_vlm.workload import Shape
from auras_ros.cli import bench as cli
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table_file import cpu_name, read_ways, write_table

ROOT = Path(__file__).parents[3]


def report_of(name: str, folder: Path, *words: str) -> Any:
    file = folder / f"{name}.json"
    assert cli.run([name, *words, "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_a_switch_stands_over_the_floor_of_its_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--decoders", "tiny", "--ranks", "4", "--rounds", "2", "--cores", "1"]
    report = report_of("lora-switch", tmp_path, *short)
    assert [row["change"] for row in report["rows"]] == ["merge", "exchange", "restore", "packing"]
    assert {row["n"] for row in report["rows"]} == {2}
    worst = max(row["over_floor"] for row in report["rows"] if row["change"] != "packing")
    assert report["summary"]["ms_over_floor"] == worst
    assert 0 < report["summary"]["drift_tiny_4"] < 1e-2
    assert "dLoRA" in capsys.readouterr().out


def test_the_floor_is_memory_or_products_whichever_is_more() -> None:
    times = {"merge": [4.0, 9.0], "exchange": [4.0, 8.0], "restore": [2.0, 4.0], "packing": [40.0, 40.0]}
    found = times | {"copy": [2.0, 4.5], "square": [1.0, 1.0]}
    operations = round(3 * 2 * switch.SQUARE**3)  # three times the square's: 3 ms
    rows = {row["change"]: row for row in switch.switch_rows(found, operations, {"decoder": "d", "rank": 1})}
    assert rows["merge"]["over_floor"] == pytest.approx((4 / 3 + 9 / 4.5) / 2)
    assert rows["restore"]["over_floor"] == pytest.approx((1 + 4 / 4.5) / 2)
    assert (rows["merge"]["floor_ms"], rows["merge"]["bound"]) == (3.75, "memory")
    assert switch.summarised(list(rows.values()))["packing_over_exchange"] == pytest.approx(40 / 6)


def test_modes_are_of_one_batch_and_the_mixture_is_beside_the_same_rows(tmp_path: Path) -> None:
    short = ["--decoders", "tiny", "--batch", "4", "--adapters", "3", "--rank", "2", "--context", "4", "--tokens", "3"]
    short += ["--forwards", "1", "--rounds", "2", "--cores", "1", "--way", "segmented"]
    report = report_of("lora-modes", tmp_path, *short)
    wanted = [("base", 0), ("merged", 0), ("mixture", 1), ("mixture", 2), ("unmerged", 1), ("unmerged", 2)]
    for phase in ("decode", "prefill"):
        rows = [row for row in report["rows"] if row["phase"] == phase]
        assert [(row["mode"], row["starving"]) for row in rows] == wanted
        assert {(row["n"], row["way"]) for row in rows} == {(2, "segmented")}
    assert [row["mode"] for row in report["rows"] if row["phase"] == "in turn"] == ["ours", "packing", "unmerged"]
    assert {"mixture_saved", "unmerged_over_ours", "packing_over_ours"} <= report["summary"].keys()


@pytest.mark.parametrize("way", ["", "segmented"])
def test_forwards_of_all_modes_are_one_result(way: str) -> None:
    options = argparse.Namespace(rank=4, adapters=3, seed=0, context=5, tokens=3, batch=4, way=way)
    forwards = modes.ModeForwards(options, "tiny")
    for phase in ("decode", "prefill"):
        for starving in (0, 2):
            forwards.weights.switch(None)
            own = modes.owners(("unmerged", starving), 4, 3)
            unmerged = forwards(phase, own)
            assert not torch.allclose(unmerged, forwards(phase, [None] * 4), atol=1e-2)
            forwards.weights.switch(forwards.decoder.residents[0])
            torch.testing.assert_close(forwards(phase, own), unmerged, rtol=1e-3, atol=1e-3)
    assert own == [0, 0, 1, 2]


def test_what_mixture_saves_is_of_unmergeds_extra_time() -> None:
    found = {
        ("base", 0): [10.0, 20.0], ("mixture", 1): [12.0, 22.0], ("unmerged", 1): [18.0, 28.0],
        ("merged", 0): [10.0, 20.0],
    }  # fmt: skip
    rows = modes.mode_rows(found, {"decoder": "d", "phase": "decode"})
    (mixture,) = (row for row in rows if row["mode"] == "mixture")
    assert mixture["saved"] == pytest.approx(1 - 2 / 8)
    assert mixture["over_base"] == pytest.approx((1.2 + 1.1) / 2)
    assert modes.summarised(rows)["unmerged_extra_decode_d"] == pytest.approx((0.8 + 0.4) / 2)


def test_streams_are_counted_and_chunks_are_timed_with_the_same_ones(tmp_path: Path) -> None:
    short = ["--frames", "2", "--tokens", "1", "--adapters", "2", "--rank", "2", "--most", "1", "--seconds", "1"]
    report = report_of("lora-streams", tmp_path, *short, "--sessions", "1", "--rounds", "1", "--cores", "1")
    rows = {row["side"]: row for row in report["rows"] if row.get("images") != 2}
    assert list(rows) == [*streams.SIDES, "prefix caching on", "prefix caching off"]
    frames = {row["side"]: row for row in report["rows"] if row.get("images") == 2}
    assert list(frames) == ["prefix caching on", "prefix caching off"]
    assert report["summary"]["uncached_over_cached_frames"] == frames["prefix caching off"]["over_cached"]
    for side in streams.SIDES:
        assert rows[side]["streams"] in (0, 1)
        assert rows[side]["same_streams"] == 1
    assert report["summary"]["heads_saved"] == rows["tokens"]["below"]
    assert rows["prefix caching on"]["over_cached"] == 1


def test_a_chunks_latency_is_compared_within_a_round() -> None:
    """The second round is on a busy machine, for both."""
    took = {"heads": [[0.1, 0.3], [1.2]], "tokens": [[0.4], [1.2, 1.2]]}
    options = argparse.Namespace(frames=2, image_px=16, tokens=5, adapters=1, rank=4, cores=1)
    _, tokens = streams.stream_rows({"heads": [3, 5], "tokens": [2, 2]}, took, options, same=2)
    assert tokens["below"] == pytest.approx(1 - (0.5 + 1.0) / 2)
    assert tokens["chunk_ms"] == pytest.approx(800)


@pytest.mark.parametrize(
    ("limit", "most", "wanted"), [(0, 8, 0), (1, 8, 1), (5, 8, 5), (7, 8, 7), (20, 8, 8), (20, 6, 6)]
)
def test_the_most_streams_are_found_by_doubling_and_halving(limit: int, most: int, wanted: int) -> None:
    tried = list[int]()

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= limit

    assert streams.most_streams(fits, most) == wanted
    assert len(tried) == len(set(tried))
    assert max(tried, default=0) <= most


def test_every_answer_is_checked_whatever_is_in_memory(tmp_path: Path) -> None:
    short = ["--adapters", "4", "--slots", "1", "--requests", "10", "--tokens", "2", "--at-once", "3", "--cores", "1"]
    report = report_of("lora-swap", tmp_path, *short)
    few, whole = report["rows"]
    assert (few["slots"], whole["slots"]) == (1, 4)
    assert report["summary"]["wrong"] == few["wrong"] == 0
    assert few["loads"] >= len({name for name, _ in swap.drawn([f"adapter-{n}" for n in range(4)], 10, 0)}) - 1
    assert few["evictions"] == few["loads"]  # each was read once before
    assert (whole["loads"], whole["evictions"], whole["hit_share"]) == (0, 0, 1)
    assert 1 < few["distinct"] <= few["answers"] == len(set(swap.drawn([f"adapter-{n}" for n in range(4)], 10, 0)))


def test_heads_and_decoding_have_prompts_of_one_length(tmp_path: Path) -> None:
    report = report_of("lora-heads", tmp_path, "--prefixes", "8", "--tokens", "2", "--rounds", "2", "--cores", "1")
    assert [(row["prefix"], row["what"]) for row in report["rows"]][:2] == [(8, "decoder"), (8, "request")]
    assert [row["what"] for row in report["rows"]][2:] == ["decoder", "request, image"]
    assert report["summary"] == {"latency_saved_8": report["rows"][0]["saved"]}


def test_a_trace_is_its_seeds_and_its_skew() -> None:
    trace = LoraTrace(0.6, with_image=0.0)
    names = [f"a{number}" for number in range(5)]
    bodies = [json.loads(each) for each in trace.bodies(names, 4000, "s")]
    assert [json.loads(each) for each in trace.bodies(names, 4000, "s")] == bodies
    counts = [sum(each["model"] == name for each in bodies) / 4000 for name in names]
    assert counts[0] == pytest.approx(0.6, abs=0.03)
    assert counts[1:] == pytest.approx([0.1] * 4, abs=0.02)
    lengths = sorted(each["max_tokens"] for each in bodies)
    assert lengths[2000] == pytest.approx(32, abs=2)
    assert lengths[-1] <= 128
    times = trace.arrivals(5.0, 4000, "s")
    assert times == sorted(times)
    assert times[-1] == pytest.approx(4000 / 5, rel=0.1)


def test_adapters_are_of_the_decoder_alone(tmp_path: Path) -> None:
    made = write_adapters(ROOT / "checkpoints" / "pusht-vlm", tmp_path, 2, 4, 0)
    from safetensors import safe_open

    with safe_open(made["adapter-1"] / "adapter_model.safetensors", framework="pt") as file:
        names = list(file.keys())
    assert names
    assert not [name for name in names if "vision" in name]
    assert {name.rpartition(".lora_")[2] for name in names} == {"A.weight", "B.weight"}


def window(*token_ms: float, text: str = "") -> Window:
    """Answers of ten tokens with this average token latency."""
    answers = tuple(StreamedAnswer(0.0, 0.1, (), 10 * each / 1e3, 10, 5, text) for each in token_ms)
    return Window(Load(answers, 1.0, 0.0), 0.0)


def test_the_gain_is_over_the_best_system_and_over_the_best_policy() -> None:
    measured = ModelWindows("m", Shape(1, 0.0, (0, 0), (0, 0)), 2)
    sides = {
        load.OWN: (80, 90), "s-lora": (120, 130), "punica": (160, 180), "dlora": (100, 100),
        "auras merge-only": (200, 300), "auras unmerge-only": (90, 100), "auras dlora": (85, 95),
        "auras valora": (86, 96), "auras dlora merged-all": (82, 92),
        "vllm eager": (160, 180),
    }  # fmt: skip
    low, high = load.at_share(0.5), load.at_share(0.7)
    measured.windows[low] = {side: [window(100)] * 2 for side in sides}
    measured.windows[high] = {side: [window(each) for each in values] for side, values in sides.items()}
    measured.windows[high]["punica"][1] = window(180, text="another")
    measured.windows[CLOSED] = {side: [window(1.0)] for side in sides}
    measured.rates_hz = {low: 5.0, high: 7.0}
    asked, options = load.AdapterLoad(0.6, 8, 16, 8, 3), argparse.Namespace(theta_ms=250, shares=[0.5, 0.7])
    rows = load.load_rows(measured, list(sides), options, asked, {(high, "punica"): 1, (high, "dlora"): 0})
    assert [row["rate_hz"] for row in rows] == [5.0] * len(sides) + [7.0] * len(sides)
    assert load.summarised(rows)["gain_over_best"] == 0  # the worst of all rates
    rows = rows[len(sides) :]
    of = {row["side"]: row for row in rows}
    assert of["dlora"]["ratio"] == pytest.approx((0.8 + 0.9) / 2)
    found = load.summarised(rows)
    assert found["unequal_share"] == 1 / 20  # one answer of two, of ten tokens each
    assert found["unequal_far"] == 1
    assert found["gain_over_best"] == pytest.approx(1 - of["dlora"]["ratio"])
    assert found["policy_gain"] == pytest.approx(1 - of["auras dlora"]["ratio"])
    assert found["policy_gain_low"] == pytest.approx(
        1 - max(of[each]["ratio_high"] for each in (*load.POLICIES, "auras merge-only"))
    )
    assert found["merged_all_gain"] == pytest.approx(1 - of["auras dlora merged-all"]["ratio"])
    assert found["over_vllm"] == pytest.approx(0.5)
    assert "gain_over_best" not in load.summarised([row | {"skew": 0.2} for row in rows])
    assert "policy_gain" not in load.summarised([row for row in rows if row["side"] != "auras valora"])
    assert "policy_gain" in found
    unseen = [row | {"far": None} if row["side"] == "punica" else row for row in rows]
    assert load.summarised(unseen)["unequal_unseen"] == 1
    assert "unequal_far" not in load.summarised(unseen)


def test_a_side_that_fails_late_costs_no_other_ones_rounds() -> None:
    measured, share = ModelWindows("m", Shape(1, 0.0, (0, 0), (0, 0)), 2), load.at_share(0.7)
    measured.windows[share] = {load.OWN: [window(80)] * 2, "s-lora": [window(100)] * 3, "dlora": [window(160)]}
    asked, options = load.AdapterLoad(0.6, 8, 16, 8, 3), argparse.Namespace(theta_ms=250, shares=[0.7])
    sides = ["vllm eager", load.OWN, "s-lora", "dlora"]
    of = {row["side"]: row for row in load.load_rows(measured, sides, options, asked, {})}
    assert (of["s-lora"]["rounds"], of["s-lora"]["ratio"]) == (3, pytest.approx(0.8))
    assert "unequal" not in of["s-lora"]  # nobody to compare with
    assert {side for side, row in of.items() if "why" in row} == {"vllm eager", "dlora"}
    del measured.windows[share][load.OWN]
    (row,) = (row for row in load.load_rows(measured, sides, options, asked, {}) if row["side"] == "s-lora")
    assert row["token_ms"] == pytest.approx(100)
    assert "ratio" not in row


@pytest.mark.parametrize("side", load.SIDES)
def test_other_systems_keep_one_adapters_merged_weights(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are asked for: ours, and policies that are given them."""
    monkeypatch.setattr(load, "openmp_of", lambda _: {})
    asked, options = (
        load.AdapterLoad(0.6, 8, 16, 8, 3),
        argparse.Namespace(theta_ms=250, table=None, setup=tmp_path, cores=2),
    )
    words = load.our_side(side, Path("python"), Path("model"), "m", {"a": Path("a")}, asked, options).argv
    kept = [words[place + 1] for place, word in enumerate(words) if word == "--max-merged-loras"]
    assert kept == (["3"] if side in (load.OWN, *load.MERGED_ALL) else ["1"])
    assert ("--no-lora-exact" in words) == (side == "dlora")
    assert load.merged_loras("vllm eager", asked) == load.merged_loras("s-lora", asked) == 0


def test_every_side_answers_all_of_the_same_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole bench on servers of a tiny model, without vLLM and its environment."""
    monkeypatch.setattr(load.environment, "setup", lambda *_: Path(sys.executable))
    monkeypatch.setattr(load.environment, "versions", lambda _: {})
    monkeypatch.setattr(load, "openmp_of", lambda _: {})
    sides = [load.OWN, load.RATED, "dlora"]
    words = ["--setup", str(tmp_path), "--no-vllm", "--models", "tiny-qwen", "--sides", ",".join(sides), "--cores", "1"]
    report = report_of(
        "lora-load", tmp_path, *words, "--adapters", "2", "--ranks", "8", "--rounds", "2", "--requests", "6"
    )
    assert [row["side"] for row in report["rows"]] == sides
    assert [row.get("why") for row in report["rows"]] == [None] * len(sides)
    assert [row["merged"] for row in report["rows"]] == [2, 0, 1]
    assert len({row["answer_tokens"] for row in report["rows"]}) == 1
    for row in report["rows"]:
        assert (row["rounds"], row["far"]) == (2, None if row["side"] == load.OWN else 0)
        assert row["rate_hz"] == pytest.approx(0.7 * report["rows"][1]["closed_hz"])
    at = "tiny_qwen_2_of_8_at_0_7_0_6"
    assert report["summary"][f"gain_over_best_{at}"] == 1 - max(row["ratio"] for row in report["rows"][2:])
    assert "gain_over_best" not in report["summary"]  # not over S-LoRA's side


def test_punicas_side_gathers_in_decodes_and_multiplies_segments_in_prefills(tmp_path: Path) -> None:
    ways = read_ways(Path(load.SIDES["punica"].ways(tmp_path, 2)), 2)
    for tokens, rank, width, parts, adapters in ((1, 8, 64, 1, 1), (7, 64, 896, 3, 8), (512, 128, 4864, 2, 4)):
        sizes = (tokens, rank, width, width, parts, adapters)
        assert ways.name(LoraShape("prefill", *sizes)) == "segmented"
        assert ways.name(LoraShape("decode", *sizes)) == "gathered"


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("lora-switch", ["--ranks", "0"], "--ranks: from 1 to 256, got [0]"),
        ("lora-switch", ["--decoders", "huge"], "'huge' is not known"),
        ("lora-swap", ["--slots", "0"], "--slots must be at least 1, got 0"),
        ("lora-swap", ["nowhere"], "folder: "),
        ("lora-heads", ["--prefixes", "2"], "--prefixes: from 4 tokens on, got [2]"),
        ("lora-modes", ["--batch", "1"], "--batch must be at least 2, got 1"),
        ("lora-streams", ["--frames", "31"], "--frames: 31 of the 30 of a chunk"),
        ("lora-streams", ["--seconds", "0.5"], "--seconds: from 1 on, got 0.5"),
        ("lora-skew", ["--setup", "x", "--adapters", "0"], "--adapters and --ranks: from 1 on, got [0] and [64]"),
        ("lora-adapters", ["--setup", "x", "--sides", "dlora"], "are always needed"),
        ("lora-load", ["--setup", "x", "--skews", "0"], "--skews: above 0, to 1, got 0"),
        ("lora-load", ["--setup", "x", "--shares", "0.7,1.1"], "--shares: above 0, to 1, got 1.1"),
        (
            "lora-load",
            ["--setup", "x", "--sides", "dlora"],
            "--sides: auras per-forward and auras unmerge-only are always needed",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(
    name: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run([name, *words])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_a_table_of_another_machine_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server would log it and multiply by the rule."""
    path = tmp_path / "ways.json"
    write_table(path, "another, 2 threads", {LoraShape("decode", 8, 8, 64, 64, 1, 2): "joint"})
    with pytest.raises(SystemExit) as refused:
        cli.run(["lora-load", "--setup", "x", "--table", str(path)])
    assert refused.value.code == 2
    assert f"--table: {path} has no table of {cpu_name(2)}" in capsys.readouterr().err
