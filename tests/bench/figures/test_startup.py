"""`auras bench startup` and `fig3`: what is counted, timed and held, against counts made another way.

Guards: memory of an executor that is somebody else's; the first chunk of a full pipeline taken for that of an empty
one; operations of one step counted as a request's; a phase's time in the other's row.
"""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auras_ros.bench.figures import fig3, startup
from auras_ros.bench.figures.startup import first_chunks, ready
from auras_ros.bench.policies import build
from auras_ros.cli import main as cli
from auras_ros.measure.executors import Bench
from auras_ros.measure.minutes import OVER, OverError
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.architectures import make_policy

CPU = torch.device("cpu")
QUICK = ["--steps=4", "--pp-generation=2", "--repeats=2", "--device=cpu", "--cores=1"]


def test_each_worker_holds_its_own_and_auras_holds_one_frame(tiny: str) -> None:
    """Buffers of n workers are n times those of one (Auras 6.3); weights are nobody's."""
    policy = make_policy(tiny, seed=0, steps=4)
    held, made = {}, []
    for plan in (Plan("ddpm4"), *(Plan("ddpm4", "par", concurrency=n) for n in (1, 3)), Plan("ddpm4", "auras")):
        executor, row = ready(policy, plan, CPU, 0)
        made.append(executor)
        held[plan.mode, plan.concurrency] = row["tensor_bytes"]
        assert row["ready_ms"] >= row["capture_ms"] >= 0
        assert row["captures"] > 0
        assert row["reserved_bytes"] == 0
    weights = sum(each.numel() * each.element_size() for each in policy.parameters())
    images, state = policy.example(1)
    inputs = 4 * (images.numel() + state.numel())
    assert held["par", 1] == held["seq", 1]
    assert held["par", 3] == 3 * held["par", 1]
    assert all(inputs <= each < inputs + weights for (_, n), each in held.items() if n == 1)
    for executor in made:
        executor.close()


@pytest.mark.parametrize("stages", [1, 4])
def test_the_first_chunk_comes_after_as_many_frames_as_a_request_lives(tiny: str, stages: int) -> None:
    """Every repeat begins with an empty pipeline."""
    policy = make_policy(tiny, seed=0, steps=4)
    executor, _ = ready(policy, Plan("ddpm4", "auras", pp_generation=stages), CPU, 0)
    frames: list[int] = []
    (worker,) = executor.workers
    right = worker.end

    def end(now_ns: int) -> object:
        emission = right(now_ns)
        if emission is not None:
            frames.append(len(emission.contexts))
            frames.append(emission.frame)
        return emission

    worker.end = end
    began = executor.frames
    found = first_chunks(executor, policy, 1, 0)
    assert frames[:2] == [stages, began + stages - 1]
    assert found["first_chunk_ms"] == found["first_chunk_ms_low"] == found["first_chunk_ms_high"] > 0
    executor.close()


def test_the_startup_report_has_every_mode(tiny: str, tmp_path: Path) -> None:
    path, picture = tmp_path / "s.json", tmp_path / "s.png"
    argv = ["--policy", f"{tiny},rt2-tiny", *QUICK, "--json", str(path), "--picture", str(picture)]
    assert cli.main(["bench", "startup", *argv]) == 0
    report = json.loads(path.read_text())
    modes = [(row["mode"], row["concurrency"]) for row in report["rows"]]
    assert modes == 2 * [("seq", 1), ("dec", 1), ("par", 1), ("par", 3), ("auras", 1)]
    rows = {(row["policy"], row["mode"], row["concurrency"]): row for row in report["rows"]}
    assert rows["rt2-tiny", "auras", 1]["plan"] == "quick,mode=auras,pp_generation=7,fetch_offset=-1"
    for name in (tiny, "rt2-tiny"):
        key = name.replace("-", "_")
        assert report["summary"][f"first_chunk_ms_{key}"] == rows[name, "auras", 1]["first_chunk_ms"]
        each = rows[name, "par", 1]["tensor_bytes"] / 1024
        assert report["summary"][f"worker_tensor_kib_{key}"] == pytest.approx(each)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {row["uncaptured"] for row in report["rows"]} == {""}
    said = [one["paper"] for one in report["paper"]]
    assert said == [154.0, 218.0, 40.0, 67.0]


def test_a_first_chunk_is_not_waited_for_beyond_the_minutes(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, for five minutes, and five times. Fewer repeats are kept; the report says of how many a row is."""
    policy, now, limits = make_policy(tiny, seed=0, steps=4), [100.0], list[float]()

    def saturate(executor: object, feed: object, outputs: int, limit_s: float) -> tuple[int, ...]:
        limits.append(limit_s)
        now[0] += min(limit_s, 7.0)
        return (1,) if limit_s >= 7.0 else ()

    monkeypatch.setattr(startup, "saturate", saturate)
    monkeypatch.setattr(startup, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert first_chunks(None, policy, 5, 0, end_s=120.0)["repeats"] == 2
    assert limits == [20.0, 13.0, 6.0]
    with pytest.raises(OverError):
        first_chunks(None, policy, 5, 0, end_s=126.0)


def test_modes_that_there_is_no_time_for_are_left_out(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were failures, and the bench ended with status 1."""
    monkeypatch.setattr(startup, "time", SimpleNamespace(monotonic=lambda: math.inf))
    report = startup.run(["--policy", tiny, *QUICK], lambda text: None)
    assert report.rows == []
    assert "failed" not in report.more
    assert [each.endswith(f": {OVER}") for each in report.more["left_out"]] == [True] * 5


def test_rows_say_which_stages_are_not_captured_and_how_many_weights_are_there(
    tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = make_policy(tiny, seed=0, steps=4)
    mb = sum(each.numel() * each.element_size() for each in policy.parameters()) / 1e6
    path = tmp_path / "s.json"
    asked = ["--max-memory-mb", f"{mb * 0.9}", "--offload-folder", str(tmp_path)]
    assert cli.main(["bench", "startup", "--policy", tiny, *QUICK, *asked, "--json", str(path)]) == 0
    rows = json.loads(path.read_text())["rows"]
    assert all(row["weights_mb"] <= mb * 0.9 for row in rows)
    assert all(row["offloaded_mb"] > 0 for row in rows)
    assert all(row["uncaptured"].startswith("perception: the weights of 'encoder.") for row in rows)
    assert "not captured, ddpm4: perception: the weights of 'encoder." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-memory-mb", "-1"], "max_memory_mb: must be above 0 MB"),
        (["--offload-folder", "/tmp"], "max_memory_mb: must be above 0 MB, got 0"),
        (["--max-memory-mb", "1", "--offload-folder", "/no/such"], "offload_folder: /no/such is not a folder"),
    ],
)
def test_weights_that_cannot_be_offloaded_so_are_refused_by_name(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "startup", "--policy", "dp-small", *QUICK, *options])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


# -- figure 3 -----------------------------------------------------------------------------------------


def macs(module: torch.nn.Module, run: object) -> int:
    """Multiplications of a module's linear and convolution layers in one run, by hooks."""
    counted, hooks = [], []

    def linear(layer: torch.nn.Linear, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        counted.append(out.numel() * layer.in_features)

    def convolution(layer: torch.nn.Conv1d, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
        if isinstance(layer, torch.nn.ConvTranspose1d):
            counted.append(given[0].numel() * layer.weight[0].numel())
        else:
            counted.append(out.numel() * layer.weight[0].numel())

    for each in module.modules():
        if isinstance(each, torch.nn.Linear):
            hooks.append(each.register_forward_hook(linear))
        elif isinstance(each, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.ConvTranspose1d):
            hooks.append(each.register_forward_hook(convolution))
    run()  # type: ignore[operator]
    for hook in hooks:
        hook.remove()
    return sum(counted)


def test_a_requests_operations_are_those_of_its_layers(bench: Bench) -> None:
    """Two for each multiplication of a layer; generation has four steps. The rest is a few products of attention."""
    policy = bench.policy
    seen, index = bench.feed(1), torch.zeros(1, dtype=torch.int64)
    context = policy.perceive(seen.images, seen.state)
    state = policy.begin(bench.noise(0))
    perceiving = macs(policy.encoder, lambda: policy.perceive(seen.images, seen.state))  # type: ignore[attr-defined]
    generating = macs(policy.network, lambda: policy.step(state, context, index))  # type: ignore[attr-defined]
    perception, generation = fig3.operations(policy, bench)
    assert perception == pytest.approx(2 * perceiving, rel=0.02)
    assert generation == pytest.approx(4 * 2 * generating, rel=0.02)


def test_tokens_cost_prefill_and_decoding() -> None:
    """A decoder does two operations for each weight and embedding: the prefix and all tokens but the last go in."""
    built = build("rt2-tiny", tokens=5)
    bench = Bench(built.policy, "cpu", 0, most=1)
    _, generation = fig3.operations(built.policy, bench)
    language = built.policy.decoder  # type: ignore[attr-defined]
    layers = sum(each.numel() for each in language.layers.parameters())
    prefix = sum(built.policy.segments)  # type: ignore[attr-defined]
    least = 2 * layers * (prefix + 4) + 2 * language.lm_head.weight.numel() * 5
    assert least * 0.95 < generation < least * 1.5
    bench.close()


def test_utilisation_is_operations_over_time_over_what_the_device_can(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fig3, "peak_flops", lambda device, size, dtype: 1e9)
    monkeypatch.setattr(fig3, "operations", lambda policy, bench: (2_000_000, 30_000_000))
    monkeypatch.setattr(
        fig3, "phases", lambda bench, plan, count, end: ({"perception": 0.01, "generation": 0.05}, count)
    )
    path, picture = tmp_path / "3.json", tmp_path / "3.png"
    argv = ["--policy", tiny, "--steps=4", "--device=cpu", "--json", str(path), "--picture", str(picture)]
    assert cli.main(["bench", "fig3", *argv]) == 0
    report = json.loads(path.read_text())
    used = {row["phase"]: (row["ms"], row["utilisation_percent"]) for row in report["rows"]}
    assert used["perception"] == pytest.approx((10, 20))
    assert used["generation"] == pytest.approx((50, 60))
    assert used["request"] == pytest.approx((60, 100 * 32 / 60))
    assert report["summary"]["utilisation_tiny_perception"] == pytest.approx(20)
    assert "not the same" in report["note"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_phases_are_timed_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perception made 20 ms longer, and each of four steps 15 ms: at least that in its own phase."""
    perceive, step = bench.policy.perceive, bench.policy.step
    waits = threading.Event()

    def slow_perceive(*given: torch.Tensor) -> torch.Tensor:
        waits.wait(0.02)
        return perceive(*given)

    def slow_step(*given: object) -> object:
        waits.wait(0.015)
        return step(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.policy, "perceive", slow_perceive)
    monkeypatch.setattr(bench.policy, "step", slow_step)
    took, requests = fig3.phases(bench, "ddpm4", 3)
    assert requests == 3
    assert took["perception"] >= 0.02
    assert took["generation"] >= 0.06


def test_fig3_really_runs() -> None:
    argv = ["--policy=rt2-tiny,tinyvla-tiny", "--steps=4", "--requests=1", "--size=64", "--device=cpu"]
    report = fig3.run(argv, lambda text: None)
    assert len(report.rows) == 6
    assert all(row["utilisation_percent"] > 0 for row in report.rows)
    assert report.summary["peak_gflop_per_s"] > 0


@pytest.mark.parametrize(
    ("bench_name", "argv", "said"),
    [
        ("startup", ["--policy=gpt"], "'gpt' is not known"),
        ("startup", ["--repeats=0"], "--repeats must be at least 1"),
        ("startup", ["--concurrency=0"], "concurrency"),
        ("startup", ["--steps=4"], "--pp-generation: 8 stages for 4 steps"),
        ("fig3", ["--policy=gpt"], "'gpt' is not known"),
        ("fig3", ["--requests=0"], "--requests must be at least 1"),
    ],
)
def test_options_that_cannot_be_used(
    bench_name: str, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        {"startup": startup, "fig3": fig3}[bench_name].run([*argv, "--device=cpu"], print)
    assert said in capsys.readouterr().err
