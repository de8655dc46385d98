"""`auras bench` around its benches: what it writes, and what it refuses before an hour rather than after.

Guards: a report of hours that cannot be written, or that an interrupted run of nothing replaces.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from auras_ros.cli import bench
from auras_ros.report.result import Report


class Fake(ModuleType):
    """A bench of one row, or of none, when it was interrupted."""

    def __init__(self) -> None:
        super().__init__("fake")
        self.report, self.ran = Report("fig14", [{"n": 1, "cores": 1}]), 0

    def run(self, argv: list[str], progress: object) -> Report:
        self.ran += 1
        return self.report

    def draw(self, report: Report, path: Path) -> None:
        path.write_bytes(b"drawn")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(bench, "_module", lambda name: made)
    return made


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "."], "--json: . is a folder"),
        (["--json", "nowhere/it.json"], "--json: no folder nowhere"),
        (["--json", "/proc/it.json"], "--json: /proc/it.json: "),
        (["--picture", "/proc/it.png"], "--picture: /proc/it.png: "),
        (["--json", "it.png", "--picture", "./it.png"], "--picture: it.png is also that of --json"),
        (["--picture", "it.doc"], "--picture: it.doc: no such format; known: "),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_bench_runs(
    fake: Fake, arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as refused:
        bench.run(["fig14", *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err
    assert (fake.ran, list(tmp_path.iterdir())) == (0, [])


def test_what_was_measured_is_written(fake: Fake, tmp_path: Path) -> None:
    report, picture = tmp_path / "14.json", tmp_path / "14.png"
    assert bench.run(["fig14", "--json", str(report), "--picture", str(picture)]) == 0
    assert json.loads(report.read_text())["rows"] == [{"n": 1, "cores": 1}]
    assert picture.read_bytes() == b"drawn"


def test_interrupted_before_anything_was_measured_it_leaves_what_is_there(fake: Fake, tmp_path: Path) -> None:
    fake.report = Report("fig14", more={"interrupted": "at once"})
    report, picture = tmp_path / "14.json", tmp_path / "14.png"
    report.write_text("of yesterday")
    assert bench.run(["fig14", "--json", str(report), "--picture", str(picture)]) == bench.INTERRUPTED
    assert report.read_text() == "of yesterday"
    assert not picture.exists()


def test_interrupted_with_something_measured_it_writes_that(fake: Fake, tmp_path: Path) -> None:
    fake.report.more["interrupted"] = "later"
    report = tmp_path / "14.json"
    assert bench.run(["fig14", "--json", str(report)]) == bench.INTERRUPTED
    assert json.loads(report.read_text())["interrupted"] == "later"


@pytest.mark.parametrize("name", ["fig3", "fig15"])
def test_the_help_of_a_bench_names_the_options_of_all(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.run([name, "--help"])
    said = capsys.readouterr().out
    assert said.startswith(f"usage: auras bench {name}")
    assert "--seed" in said
    assert said.endswith("--json FILE, and --picture FILE if it draws one\n")


def test_a_row_that_does_not_say_its_cores_is_a_failure_and_is_written_all_the_same(
    fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.report.rows.append({"n": 2})
    report = tmp_path / "14.json"
    assert bench.run(["fig14", "--json", str(report)]) == 1
    assert json.loads(report.read_text())["failed"] == ["fig14: rows without cores: 1"]
    assert "failed: fig14: rows without cores: 1" in capsys.readouterr().err


def test_what_failed_was_left_out_and_was_disturbed_is_said(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.report.more = {"failed": ["dec: no rate"], "left_out": ["late: no time"], "disturbed": ["seq: twice as fast"]}
    assert bench.run(["fig14"]) == 1
    said = capsys.readouterr()
    assert "skipped: late: no time\ndisturbed, measure again on a quiet machine: seq: twice as fast\n" in said.out
    assert said.err.endswith("failed: dec: no rate\n")


def test_a_full_disk_is_told_with_the_name_of_the_file(fake: Fake, tmp_path: Path) -> None:
    """`[Errno 28] No space left on device` and nothing else, after an hour."""
    full = tmp_path / "14.json.partial"
    full.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*14\.json'"):
        bench.run(["fig14", "--json", str(tmp_path / "14.json")])
    picture = tmp_path / "14.png"
    fake.draw = lambda report, path: Path("/dev/full").write_bytes(b"x" * 9999)  # type: ignore[method-assign]
    with pytest.raises(OSError, match=r"No space left on device: '.*14\.png'"):
        bench.run(["fig14", "--picture", str(picture)])
