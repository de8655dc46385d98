"""`auras trace` as a user runs it: a trace that Perfetto can load, and a picture with the stages in it."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros import resources
from auras_ros.cli import main as cli
from auras_ros.clock import VirtualClock
from auras_ros.measure import trace as trace_bench
from auras_ros.measure.recording import FrameMark, Recording
from auras_ros.measure.trace_picture import GENERATION, PERCEPTION, draw, window
from auras_ros.pipeline.live import Frame
from auras_ros.pipeline.plan import Plan
from auras_ros.policies import architectures
from tests.bench.registered import NAME, RECIPE

MS = 1_000_000
STAGES = 3
NEEDED = {
    "X": {"name", "ts", "dur", "pid", "tid"},
    "i": {"name", "ts", "s", "pid", "tid"},
    "C": {"name", "ts", "args", "pid"},
    "M": {"name", "args", "pid"},
    "b": {"name", "cat", "id", "ts", "pid"},
    "n": {"name", "cat", "id", "ts", "pid"},
    "e": {"name", "cat", "id", "ts", "pid"},
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(architectures.RECIPES, NAME, RECIPE)
    return NAME


def traced(tiny: str, out: Path, plan: str) -> dict[str, Any]:
    """Run it for a moment after the first chunk; the trace."""
    words = ["--policy", tiny, "--plan", plan, "--device", "cpu", "--seconds", "0.3", "--out", str(out)]
    assert cli.main(["trace", *words]) == 0
    return dict(json.loads((out / "trace.json").read_text()))


def by_kind(trace: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        found[event["ph"]].append(event)
    return found


def test_the_trace_has_the_form_that_perfetto_reads(tiny: str, tmp_path: Path) -> None:
    trace = traced(tiny, tmp_path / "out", f"ddim6,mode=auras,pp_generation={STAGES}")
    events = by_kind(trace)
    assert set(events) == set(NEEDED)
    for kind, needed in NEEDED.items():
        for event in events[kind]:
            assert needed <= set(event), event
            assert event["ts"] >= 0
            assert isinstance(event["name"], str)
    _check_lanes(events)
    _check_requests(events)
    assert {event["args"]["requests"] for event in events["C"]} <= set(range(STAGES + 1))
    assert max(event["args"]["requests"] for event in events["C"]) == STAGES
    numbers = [event["args"]["frame"] for event in events["i"]]
    assert numbers == list(range(len(numbers)))  # and warm-up's are not among them,
    assert min(event["ts"] for event in events["X"]) > min(event["ts"] for event in events["i"])  # nor its stages
    about = trace["otherData"]
    assert (about["policy"], about["plan"]) == (tiny, f"ddim6,mode=auras,pp_generation={STAGES}")
    assert about["spans_dropped"] == 0


def test_warm_up_leaves_no_request_in_a_short_trace(tiny: str, tmp_path: Path) -> None:
    """Warm-up admits more requests than a run that ends with its first chunk."""
    words = [
        "--policy",
        tiny,
        "--plan",
        "ddim8,mode=auras,pp_generation=8",
        "--seconds",
        "1e-6",
        "--out",
        str(tmp_path),
    ]
    assert cli.main(["trace", *words]) == 0
    events = by_kind(json.loads((tmp_path / "trace.json").read_text()))
    assert min(event["ts"] for event in events["b"]) >= min(event["ts"] for event in events["i"])
    assert [event["id"] for event in events["b"]] == list(range(len(events["i"])))


def _check_lanes(events: dict[str, list[dict[str, Any]]]) -> None:
    """Every row has a name, and stages on a lane run one after another."""
    names = {event["tid"]: event["args"]["name"] for event in events["M"] if event["name"] == "thread_name"}
    assert set(names.values()) == {"frames", "perception", "generation", "frame copies"}
    for lane in {event["tid"] for event in events["X"]}:
        assert lane in names
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events["X"] if e["tid"] == lane)
        assert all(later[0] >= earlier[1] - 1e-3 for earlier, later in pairwise(spans))


def _check_requests(events: dict[str, list[dict[str, Any]]]) -> None:
    begun, ended = ({event["id"]: event["ts"] for event in events[kind]} for kind in "be")
    assert ended, "the run goes on after the first chunk"
    assert set(ended) <= set(begun)
    assert all(begun[request] < at for request, at in ended.items())
    assert len(events["n"]) == STAGES * len(ended)


@pytest.mark.parametrize(
    ("plan", "lanes"),
    [
        ("ddim4", {"frame", "frame copies"}),
        ("ddim4,mode=dec", {"perceive", "perceive copies", "generate", "generate copies"}),
        ("ddim4,mode=par,concurrency=2", {"worker0", "worker0 copies", "worker1", "worker1 copies"}),
        ("ddim4,mode=auras,pp_generation=2,fetch_offset=-1", {"perception", "generation", "frame copies"}),
    ],
)
def test_every_mode_leaves_its_lanes(tiny: str, tmp_path: Path, plan: str, lanes: set[str]) -> None:
    events = by_kind(traced(tiny, tmp_path, plan))
    names = {event["tid"]: event["args"]["name"] for event in events["M"] if event["name"] == "thread_name"}
    assert {names[event["tid"]] for event in events["X"]} <= lanes
    assert set(names.values()) - {"frames"} == lanes
    assert events["e"]


def test_a_checkpoint_is_traced_with_the_weights_that_were_asked_for() -> None:
    folder, plan = resources.checkpoint("pusht"), Plan("quick")
    for dtype, kept in (("auto", torch.float32), ("bfloat16", torch.bfloat16)):
        setup = trace_bench.from_checkpoint(folder, plan, 0, "cpu", dtype)
        assert next(setup.policy.parameters()).dtype == kept


def test_a_type_without_a_checkpoint_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["trace", "--dtype", "bfloat16", "--out", str(tmp_path)])
    assert "--dtype: only with --checkpoint" in capsys.readouterr().err


def test_a_checkpoint_is_traced_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--checkpoint", "pusht", "--plan", "quick", "--device", "cpu", "--seconds", "0.1", "--out", str(tmp_path)]
    assert cli.main(["trace", *words]) == 0
    assert by_kind(json.loads((tmp_path / "trace.json").read_text()))["X"]
    text = capsys.readouterr().out
    assert f"written: {tmp_path / 'trace.json'}" in text
    assert f"written: {tmp_path / 'timeline.png'}" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "ddim4,mode=fast"], "plan: mode: must be one of"),
        (["--plan", "quick"], "plan: generation: 'quick': without a checkpoint give ddpmN or ddimN"),
        (["--plan", "ddpm4", "--policy", "huge"], "policy 'huge' is not known"),
        (["--checkpoint", "pusht", "--plan", "quick", "--dtype", "int8"], "dtype 'int8': must be one of auto"),
        (["--checkpoint", "nowhere", "--plan", "quick"], "checkpoint 'nowhere': no such folder"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["trace", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


# -- the picture ------------------------------------------------------------------------------------------


def recorded(frames: int) -> Recording:
    recording = Recording(VirtualClock())
    for number in range(frames):
        ended_ns = number * 10 * MS + 9 * MS
        recording.ended(Frame("frame", number, number * 10 * MS, ended_ns, ended_ns, None))
    return recording


def test_the_window_is_ten_frames_in_the_middle() -> None:
    assert window(recorded(30).frames()) == (100 * MS, 199 * MS)
    assert window(recorded(3).frames()) == (0, 29 * MS)
    unfinished = FrameMark("frame", 3, 30 * MS, 0)
    assert window([*recorded(3).frames(), unfinished]) == (0, 29 * MS)
    with pytest.raises(ValueError, match="no frame was finished"):
        window([unfinished])


def test_the_picture_shows_perception_and_generation(tiny: str, tmp_path: Path) -> None:
    """Both colours fill a part of it, a small one on a busy machine: stages are drawn where they ran."""
    image = pytest.importorskip("matplotlib.image")
    traced(tiny, tmp_path, "ddim6,mode=auras,pp_generation=3")
    pixels = (image.imread(tmp_path / "timeline.png")[..., :3] * 255).round().astype(int)
    assert pixels.shape[1] == 1600
    for colour in (PERCEPTION, GENERATION):
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(pixels - wanted).max(axis=2) < 6).sum() > 300


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        draw([], recorded(0), "empty", tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()


def test_where_it_cannot_write_it_says_so_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trace_bench, "record", lambda *given: pytest.fail("measured"))
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "out" / "timeline.png").mkdir(parents=True)
    for out, said in (
        ("taken", "--out: "),
        ("/proc/out", "--out: /proc/out: "),
        ("out", "timeline.png is a folder"),
    ):
        with pytest.raises(SystemExit) as refused:
            cli.main(["trace", "--out", str(tmp_path / out)])
        assert refused.value.code == 2
        assert said in capsys.readouterr().err
