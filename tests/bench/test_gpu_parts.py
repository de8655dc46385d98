"""Every part of `make gpu`: its bench takes the options that it is given, and what it measures is in the table.

Without a GPU: devices say that they are one, and nothing is measured. Guards: an option that a bench has lost; a part
that names no bench, or a policy that there is not; a part that cannot be done in its time; a table without figures.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from auras_ros.bench import gpu_parts
from auras_ros.bench.figures import fig3, fig11, fig14, fig15, fig16, played_figure, startup
from auras_ros.bench.gpu_parts import GROUPS, PARTS, GpuPart
from auras_ros.bench.gpu_process import LIMIT_S, PartError, PartSkippedError
from auras_ros.bench.lora import atmm, atmm_gpu
from auras_ros.bench.nova import corun, overhead
from auras_ros.bench.pipeline import command as pipeline
from auras_ros.bench.seams import command as seams
from auras_ros.cli import bench as cli_bench
from auras_ros.device import make
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table_file import write_table
from auras_ros.kernels.lora_tilings import SHRINK
from auras_ros.report.result import Report

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "benchmarks"
BENCHES = {name: part for name, part in PARTS.items() if part.command}
STOPS: dict[str, list[tuple[ModuleType, str]]] = {  # what would measure
    "fig3": [(fig3, "_measure")],
    "fig11": [(fig11, "_measure")],
    "fig12": [(played_figure, "FigureCampaign"), (played_figure, "_rates_of")],
    "fig13": [(played_figure, "FigureCampaign"), (played_figure, "_rates_of")],
    "fig14": [(fig14, "_measure")],
    "fig15": [(fig15, "_compare_tokens"), (fig15, "_compare_reuse")],
    "fig15-dp": [(fig15, "_compare_steps")],
    "fig16": [(fig16, "_measure")],
    "startup": [(startup, "_measure")],
    "nova-corun": [(corun, "_measure"), (corun, "_measure_linears")],
    "nova-overhead": [(overhead, "_measure")],
}


SINCE = {"auras_over_batched", "batched_over_seq"}  # what the kept reports are older than; the benches' tests have them
GPU_ALONE = {"linear_*"}  # what no report of a CPU has


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU for whoever asks what there is, and nothing that measures; the list says what would have been."""
    names: list[str] = []

    def device(name: str = "auto") -> Any:
        return SimpleNamespace(tensors=torch.device("cuda" if name != "cpu" else name), close=lambda: None)

    for module in (make, startup):
        monkeypatch.setattr(module, "make_device", device)
    for stops in STOPS.values():
        for module, name in stops:

            def stop(*args: Any, name: str = name, **rest: Any) -> Any:
                names.append(name)
                nothing = {"run": lambda report: None, "rows": list, "named": str}
                return SimpleNamespace(policy=SimpleNamespace(steps=100), **nothing)

            monkeypatch.setattr(module, name, stop)
    return names


@pytest.mark.parametrize("name", [name for name, part in BENCHES.items() if part.command[0] in STOPS])
def test_its_bench_takes_the_options_on_a_gpu(name: str, seen: list[str]) -> None:
    which, *argv = BENCHES[name].command
    module = cli_bench._module(which)
    report = module.run(list(argv), lambda text: None)
    assert report.name == which
    assert set(seen) == {stop for _, stop in STOPS.get(name, STOPS[which])}


@pytest.mark.parametrize("name", GROUPS["pipeline"])
def test_the_modes_bench_takes_the_options_on_a_gpu(name: str, seen: list[str]) -> None:
    parsed = pipeline._options(list(BENCHES[name].command[1:]))
    assert len(parsed.policy) == 1
    assert parsed.minutes * 60 < BENCHES[name].seconds


def test_the_other_benches_take_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seams._parser().parse_args(list(PARTS["seams"].command[1:])).latency_ms == [200.0]
    peers = pytest.importorskip("auras_ros.bench.peers.command")
    for name in GROUPS["peers"]:
        assert peers._parser().parse_args(list(BENCHES[name].command[1:])).device == "cuda"


def test_every_bench_is_one_of_the_command_lines() -> None:
    assert {part.command[0] for part in BENCHES.values()} <= set(cli_bench.BENCHES)
    figures = {f"fig{number}" for number in (3, *range(11, 17))}
    asked = {*figures, "pipeline", "startup", "seams", "peers", "nova-corun", "nova-overhead"}
    assert {part.command[0] for part in BENCHES.values()} == asked


def test_every_part_but_the_hosts_names_the_gpu() -> None:
    """`auto` would measure a CPU where the driver is broken."""
    assert [name for name, part in BENCHES.items() if "cuda" not in part.command] == ["seams"]


def test_parts_stay_inside_their_limit_and_groups_name_what_exists() -> None:
    assert LIMIT_S < 480
    assert all(part.seconds < 0.9 * LIMIT_S for part in PARTS.values())
    assert next(iter(PARTS)) == "tests"
    assert GROUPS["all"] == list(PARTS)
    assert {name for group in GROUPS.values() for name in group} == set(PARTS)
    assert GROUPS["fig15"] == ["fig15-openvla", "fig15-rt2", "fig15-dp"]


@pytest.mark.parametrize("name", BENCHES)
def test_the_figures_in_the_table_are_figures_of_its_bench(name: str) -> None:
    """Every pattern finds some in what the same bench has left on a CPU."""
    part = PARTS[name]
    summary = json.loads((KEPT / f"{part.command[0]}.json").read_text(encoding="utf-8"))["summary"]
    for pattern in part.shown:
        if pattern in SINCE | GPU_ALONE:
            continue
        assert GpuPart("", part.run, shown=(pattern,)).figures(summary), pattern
    assert "n" not in part.figures({**summary, "n": 7.0})


def test_the_tests_part_shows_how_they_ended() -> None:
    summary = {"passed": 3.0, "failed": 0.0, "skipped": 1.0}
    assert PARTS["tests"].figures({**summary, "n": 7.0}) == summary


def test_what_auras_adds_to_a_batch_is_shown() -> None:
    """The baseline that has a batch as auras has, without the pipeline."""
    for name in GROUPS["pipeline"]:
        assert PARTS[name].figures(dict.fromkeys(SINCE, 2.0)).keys() == SINCE
    for name in GROUPS["fig11"]:
        assert PARTS[name].figures(dict.fromkeys(SINCE, 2.0)).keys() == {"batched_over_seq"}


def test_a_bench_runs_as_a_process_and_leaves_its_json(tmp_path: Path) -> None:
    part = gpu_parts.bench(
        "tiny", 60, "auras_over_seq_7",
        "fig15", "--half", "tokens", "--model", "rt2-tiny", "--prefix", "6", "--tokens", "7", "--rounds", "1",
        "--device", "cpu", "--cores", "1", "--chunks", "1", "--seconds", "0",
    )  # fmt: skip
    part.run(tmp_path / "p.json")
    summary = json.loads((tmp_path / "p.json").read_text())["summary"]
    assert list(part.figures(summary)) == ["auras_over_seq_7"]
    assert part.figures(summary)["auras_over_seq_7"] > 0


def test_a_bench_that_fails_says_which_and_how(tmp_path: Path) -> None:
    part = gpu_parts.bench("none", 60, "*", "fig15", "--model", "no-such-model")
    with pytest.raises(PartError, match="auras bench fig15 ended with status 2"):
        part.run(tmp_path / "p.json")


def test_what_is_missing_is_said_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> int:
        raise AssertionError("run")

    monkeypatch.setattr(gpu_parts, "call", run)
    right: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gym_pusht" else right(name))
    with pytest.raises(PartSkippedError, match="gym_pusht is not installed"):
        PARTS["seams"].run(tmp_path / "p.json")
    monkeypatch.delenv(gpu_parts.LEROBOT_PYTHON, raising=False)
    with pytest.raises(PartSkippedError, match="LEROBOT_PYTHON is not set"):
        PARTS["peers-lerobot"].run(tmp_path / "p.json")


def test_lerobots_python_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(gpu_parts, "call", lambda command, limit_s: asked.append(command) or 0)
    monkeypatch.setenv(gpu_parts.LEROBOT_PYTHON, "/there/python")
    PARTS["peers-lerobot"].run(tmp_path / "p.json")
    assert asked[0][asked[0].index("--lerobot-python") + 1] == "/there/python"


def test_tilings_are_searched_and_then_measured_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = atmm_gpu.Gpu("a GPU", SimpleNamespace, RuntimeError, RuntimeError)
    monkeypatch.setattr(atmm_gpu, "this_gpu", lambda: pretended)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    ran, limits, shape = list[Any](), list[float](), LoraShape(SHRINK, 4, 16, 2048, 2048, 1, 4)

    def run(command: list[str], limit_s: float) -> int:
        assert command[: len(gpu_parts.CLI) + 2] == [*gpu_parts.CLI, "bench", "lora-atmm"]
        options = atmm._options([each for each in command[len(gpu_parts.CLI) + 2 :] if each not in ("--json", json_)])
        assert 60 * options.minutes < 0.9 * limit_s
        ran.append("search" if options.search else "measure")
        limits.append(limit_s)
        if options.search:
            write_table(options.search, pretended.name, {shape: "16x16x64 w4 s3 k2"})
        else:
            assert options.chooser.choose(shape).name == "16x16x64 w4 s3 k2"
        return code

    json_, code = str(tmp_path / "lora-atmm.json"), 0
    monkeypatch.setattr(gpu_parts, "call", run)
    PARTS["lora-atmm"].run(Path(json_))
    assert ran == ["search", "measure"]
    assert sum(limits) <= LIMIT_S
    code = 1
    with pytest.raises(PartError, match="auras bench lora-atmm --search ended with status 1"):
        PARTS["lora-atmm"].run(Path(json_))
    assert PARTS["lora-atmm"].figures({"shapes": 16.0, "over_rule": 1.0, "search_s": 1.0}).keys() == {
        "shapes",
        "over_rule",
    }
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PartSkippedError, match="triton is not installed"):
        PARTS["lora-atmm"].run(Path(json_))


def test_patterns_say_what_is_shown() -> None:
    part = GpuPart("x", lambda path: Report("x").write(path), shown=("a_*", "b"))
    assert part.figures({"a_1": 1.0, "b": 2.0, "b_2": 3.0}) == {"a_1": 1.0, "b": 2.0}


def test_the_table_says_where_a_figure_is_not_what_is_wanted() -> None:
    part = PARTS["fig11-dp"]
    said = part.judged({"auras_over_seq": 6.0, "spread_percent_auras": 2.0, "best_par_concurrency": 4.0})
    assert said == [
        "auras_over_seq 6 (wanted at least 6)",
        "spread_percent_auras 2 (MISSED: wanted below 2)",
        "best_par_concurrency 4",
    ]
    assert part.judged({"auras_over_seq": 5.99}) == ["auras_over_seq 5.99 (MISSED: wanted at least 6)"]


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.least or part.below])
def test_what_is_wanted_of_a_part_stands_in_its_table(name: str) -> None:
    part = PARTS[name]
    wanted = dict.fromkeys([*part.least, *part.below], 1.0)
    assert part.figures(wanted) == wanted


BARE = """
import re, sys
from importlib import metadata

def closure(names):
    found, left = set(), list(names)
    while left:
        name = re.sub("[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found.add(name)
            try:
                wants = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            left += [re.match("[A-Za-z0-9._-]+", want)[0] for want in wants if "extra ==" not in want]
    return found

here = closure(["torch", "numpy", "safetensors", "pytest"])
owners = metadata.packages_distributions()
absent = {name for name, of in owners.items() if not here & {re.sub("[-_.]+", "-", each).lower() for each in of}}
absent -= {"auras_ros", "tests"}

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else self.finder.find_spec(name, path, target)

assert {"hypothesis", "yaml", "gym_pusht"} <= absent
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-m", "gpu", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_the_gpus_tests_need_no_more_than_is_promised() -> None:
    """torch, numpy, safetensors and pytest: another import at a file's head would be a failure there, and no bench run.
    What asks for more says so and is skipped."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    files = [str(file) for file in gpu_parts.gpu_test_files()]
    ended = subprocess.run(
        [sys.executable, "-c", BARE, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "test_guided_modes.py" in ended.stdout
