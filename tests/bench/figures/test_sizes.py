"""`auras bench fig14` and the policies of chosen sizes.

Guards: a module scaled that should not be, or by the wrong factor; shared layers that compute something else, or are
not shared; a ratio of the wrong plans; rates of plans that compute different things.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from auras_ros.bench import policies
from auras_ros.bench.figures import fig14
from auras_ros.bench.policies import build, scaled
from auras_ros.cli import main as cli
from auras_ros.device import DeviceError
from auras_ros.measure import same
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.window import Length
from auras_ros.models.presets import OPENVLAS, RT2S
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy

QUICK = ["--steps=4", "--pp-generation=2", "--rounds=1", "--seconds=0", "--chunks=1", "--device=cpu", "--cores=1"]


def test_published_sizes_are_the_published_ones() -> None:
    """Auras section 6.1: two vision encoders of 0.7 B and a decoder of 7 B; counted without any memory for them."""
    with torch.device("meta"):
        network = policies._network(OPENVLAS["openvla-7b"])
    assert policies._million(network.vision) / 1000 == pytest.approx(0.7, abs=0.05)  # type: ignore[arg-type]
    assert policies._million(network.language) / 1000 == pytest.approx(6.7, abs=0.1)


@pytest.mark.parametrize("name", ["openvla-7b", "llava-1.5-7b"])
@pytest.mark.parametrize("exponent", [-4, -2, 2, 4])
def test_each_module_is_scaled_alone(name: str, exponent: int) -> None:
    """2^k of a decoder's layers and of a vision encoder's; the vocabulary's part grows with the width alone."""
    config = {**OPENVLAS, **RT2S}[name]
    with torch.device("meta"):
        published = policies._network(config)
        seeing, writing = (policies._network(scaled(config, *pair)) for pair in ((exponent, 0), (0, exponent)))
    for module, one, other in (("vision", seeing, writing), ("language", writing, seeing)):
        parts = [getattr(each, module).layers if module == "language" else getattr(each, module) for each in (one, other, published)]  # fmt: skip  # noqa: E501
        grown, same, before = map(policies._million, parts)
        assert same == before
        assert grown / before == pytest.approx(2.0**exponent, rel=0.12)


@pytest.mark.parametrize("name", ["dp-small", "dp-cnn-small"])
def test_diffusion_modules_are_scaled_alone(name: str) -> None:
    published, seeing, writing = (build(name, steps=2, perception=p, generation=g) for p, g in ((0, 0), (2, 0), (0, 2)))
    assert seeing.perception_million / published.perception_million == pytest.approx(4, rel=0.5)
    assert writing.generation_million / published.generation_million == pytest.approx(4, rel=0.5)
    assert writing.perception_million == published.perception_million
    assert sum(p.numel() for p in seeing.policy.parameters()) / 1e6 == pytest.approx(
        seeing.perception_million + seeing.generation_million
    )


@pytest.mark.parametrize("name", ["openvla-tiny", "rt2-tiny"])
def test_shared_layers_compute_what_layers_with_those_weights_would(name: str) -> None:
    shared, own = build(name, tokens=3, free=0), build(name, tokens=3)
    assert (shared.shared, own.shared) == (True, False)
    assert shared.generation_million == own.generation_million
    assert isinstance(shared.policy, AutoregressivePolicy)
    assert isinstance(own.policy, AutoregressivePolicy)
    weights = shared.policy.state_dict()
    assert weights.keys() == own.policy.state_dict().keys()
    own.policy.load_state_dict(weights)
    images, state = own.policy.example(1, torch.Generator().manual_seed(0))
    one, other = (policy.perceive(images, state) for policy in (shared.policy, own.policy))
    assert torch.equal(one, other)
    tokens = [policy.complete(one, policy.workspace(1, one.shape[1])).tokens for policy in (shared.policy, own.policy)]
    assert torch.equal(*tokens)


def test_shared_layers_stay_shared_where_they_are_moved() -> None:
    policy = build("rt2-tiny", free=0).policy
    before = sum(each.numel() for each in policy.parameters())
    policy.to(torch.device("cpu"))
    policy.double()  # type: ignore[attr-defined]
    assert sum(each.numel() for each in policy.parameters()) == before
    assert before < 1e6 * sum(vars(build("rt2-tiny"))[name] for name in ("perception_million", "generation_million"))


def test_the_report_is_what_was_measured(tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are planted by the number of parameters; everything else is the command's own."""

    def rate(self: Bench, variant: Variant, length: Length) -> float:
        million = sum(each.numel() for each in self.policy.parameters()) / 1e6
        return (3.0 if variant.plan.mode == "auras" else 1.0) * million + (variant.plan.mode == "auras")

    monkeypatch.setattr(Bench, "rate", rate)
    path, picture = tmp_path / "14.json", tmp_path / "14.png"
    argv = ["--policy", f"{tiny},rt2-tiny", "--perception=-2,2", "--generation=0,2", "--tokens=3", *QUICK]
    assert cli.main(["bench", "fig14", *argv, "--json", str(path), "--picture", str(picture)]) == 0
    report = json.loads(path.read_text())
    sizes = [(row["policy"], row["perception"], row["generation"]) for row in report["rows"]]
    assert sizes == [(name, *pair) for name in (tiny, "rt2-tiny") for pair in ((0, 0), (-2, 0), (2, 0), (0, 2))]
    for row in report["rows"]:
        million = row["perception_million"] + row["generation_million"]
        assert row["seq_hz"] == pytest.approx(million)
        assert row["speedup"] == pytest.approx(3 + 1 / million)
        plan = Plan.parse(row["plan"])
        assert (plan.pp_generation, plan.fetch_offset) == ((2, 0) if row["policy"] == tiny else (3, -1))
    of_tiny = [row["speedup"] for row in report["rows"] if row["policy"] == tiny]
    assert report["summary"]["least_tiny"] == min(of_tiny)
    assert report["summary"]["most_tiny"] == max(of_tiny)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_there_is_no_memory_for_is_left_out_by_name(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU says it: at once, or from inside a capture."""
    failures: list[Exception] = [torch.cuda.OutOfMemoryError("no room"), DeviceError("stage 'x' failed: no room")]
    failures[1].__cause__ = torch.cuda.OutOfMemoryError("no room")

    def fail(*given: object) -> None:
        raise failures.pop(0)

    monkeypatch.setattr(fig14, "measure", fail)
    argv = ["--policy", tiny, "--perception=2", "--generation=0", *QUICK]
    report = fig14.run(argv, lambda text: None)
    assert report.rows == []
    said = [f"{tiny}, perception {k}, generation +0 on 1 core" for k in ("+0", "+2")]
    assert report.more["left_out"] == [
        f"{said[0]}: no room",
        f"{said[1]}: stage 'x' failed: no room",
    ]
    failures += [DeviceError("lane 'y' is closed"), torch.cuda.OutOfMemoryError("no room")]
    report = fig14.run(argv, lambda text: None)  # any other failure is one, and the others are measured all the same
    assert report.more["failed"] == [f"{said[0]}: lane 'y' is closed"]
    assert len(report.more["left_out"]) == 1


def test_layers_are_shared_where_memory_would_not_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row says so; the sizes are those of the whole network."""
    monkeypatch.setattr(fig14, "where_built_as_run", lambda device: {"device": "cpu", "free": 10**6})
    argv = ["--policy=rt2-tiny", "--perception=0", "--generation=2", "--tokens=2", *QUICK]
    report = fig14.run(argv, lambda text: None)
    assert [row["shared_layers"] for row in report.rows] == [False, True]
    assert report.rows[1]["generation_million"] > report.rows[0]["generation_million"]
    assert "layers share parameters" in fig14.table(report)


def test_the_grid_is_every_pair() -> None:
    class Asked:
        perception, generation, grid = (-2, 0), (0, 4), True

    assert fig14.pairs(Asked()) == [(0, 0), (-2, 0), (-2, 4), (0, 4)]  # type: ignore[arg-type]


def test_it_really_runs(tiny: str) -> None:
    argv = ["--policy", f"{tiny},openvla-tiny", "--perception=0", "--generation=-2", "--tokens=2", *QUICK]
    report = fig14.run(argv, lambda text: None)
    assert len(report.rows) == 4
    assert all(row["rate_hz"] > 0 and row["seq_hz"] > 0 for row in report.rows)
    assert "OpenVLA, speedup, most" in fig14.table(report)


def test_tokens_that_differ_are_refused_unless_rounding_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(build("rt2-tiny", tokens=3).policy, "cpu", 0, most=1)
    plans = Plan(), Plan(mode="auras", pp_generation=3, fetch_offset=-1)
    same.check_same(bench, *plans)
    right = AutoregressivePolicy.refresh

    def other(self: AutoregressivePolicy, *args: object, **rest: object) -> torch.Tensor:
        return (right(self, *args, **rest) + 300) % 512  # type: ignore[arg-type]

    monkeypatch.setattr(AutoregressivePolicy, "refresh", other)
    margins = torch.tensor([[0.5, 0.2, 1e-5]])  # the last is behind the first that differs: it decides nothing
    monkeypatch.setattr(AutoregressivePolicy, "margins", lambda self, context: margins)
    with pytest.raises(RuntimeError, match="numbers of a chunk differ from "):
        same.check_same(bench, *plans)
    margins[0, 0] = 1e-5
    same.check_same(bench, *plans)
    bench.close()


def test_networks_of_another_type_are_drawn_so_and_run_so() -> None:
    before, state = torch.get_default_dtype(), torch.get_rng_state()
    built = build("openvla-tiny", tokens=3, dtype=torch.bfloat16)
    assert torch.get_default_dtype() == before
    assert torch.equal(torch.get_rng_state(), state)
    assert {each.dtype for each in built.policy.parameters()} == {torch.bfloat16}
    assert built.fields()["dtype"] == "bfloat16"
    assert build("dp-small", steps=2, dtype=torch.bfloat16).dtype == torch.float32
    bench = Bench(built.policy, "cpu", 0, most=1)
    plans = Plan(), Plan(mode="auras", pp_generation=3, fetch_offset=-1)
    same.check_same(bench, *plans)
    assert bench.rate(Variant(plans[1]), Length(1, 0.0)) > 0
    bench.close()


def test_half_the_bytes_are_shared_half_as_soon() -> None:
    bytes_ = 1e6 * sum(getattr(build("rt2-tiny"), f"{part}_million") for part in ("perception", "generation"))
    free = round(3 * bytes_ / policies.KEPT)  # room for three bytes each
    assert [build("rt2-tiny", free=free, dtype=dtype).shared for dtype in (torch.float32, torch.bfloat16)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--policy=gpt"], "'gpt' is not known"),
        (["--policy=tinyvla-tiny"], "'tinyvla-tiny' has only one size"),
        (["--perception=-9"], "exponents from -8 to 8, got -9"),
        (["--tokens=65"], "pp_generation"),
        (["--steps=5"], "10 stages for 5 steps"),
        (["--rounds=0"], "--rounds must be at least 1"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig14.run([*argv, "--device=cpu"], print)
    assert said in capsys.readouterr().err
