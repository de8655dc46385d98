"""`make gpu`: without a GPU it says so; parts can be taken up again; one that fails or hangs does not stop the rest."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros.bench import gpu, gpu_parts, gpu_process
from auras_ros.bench.gpu_parts import Part
from auras_ros.bench.gpu_process import PartError, PartSkippedError
from auras_ros.evaluate.report import Report

ROOT = Path(__file__).resolve().parents[2]
JUNIT = """<testsuites><testsuite>
<testcase classname="tests.a" name="one" time="0.5"/>
<testcase classname="tests.a" name="two" time="0.1"><failure message="no"/></testcase>
<testcase classname="tests.b" name="three" time="0.2"><skipped/></testcase>
<testcase classname="tests.b" name="four" time="0"><error/></testcase>
</testsuite></testsuites>"""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("part", ["tests,pipeline", ""])
def test_without_a_gpu_make_says_so_in_one_line(part: str, tmp_path: Path) -> None:
    command = [
        "make",
        "--no-print-directory",
        "gpu",
        f"PYTHON={sys.executable}",
        f"PART={part}",
        f"OUT={tmp_path / 'o'}",
    ]
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")  # `make test` runs this too
    env = {name: value for name, value in os.environ.items() if name not in outer} | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(ours) == 1
    assert ours[0].startswith("make gpu: no GPU to run on: device 'cuda': ")
    assert all(name in done.stdout for name in gpu.PARTS) == (part == "")
    assert not (tmp_path / "o").exists()


def test_an_unknown_part_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["warp"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("make gpu: no part 'warp'; there is ")
    assert all(name in error for name in [*gpu.PARTS, *gpu.GROUPS])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Parts that write a JSON, or end otherwise; the list says which ran."""
    names: list[str] = []

    def part(name: str) -> Part:
        def run(path: Path) -> None:
            names.append(name)
            if name == "bad" or (name == "tests" and "broken" in names):
                raise PartError("it went wrong")
            if name == "absent":
                raise PartSkippedError("wheels are not installed")
            if name != "silent":
                Report(name, summary={"auras_over_seq": 2.5, "n": 7}).write(path)

        return Part(f"the {name} part", run, shown=("*_over_*",))

    every = ("good", "bad", "absent", "silent", "tests", "other")
    monkeypatch.setattr(gpu, "PARTS", {name: part(name) for name in every})
    monkeypatch.setattr(gpu, "GROUPS", {"both": ["good", "other"]})
    monkeypatch.setattr(gpu, "require_cuda", lambda: None)
    return names


def test_a_part_whose_json_is_there_is_not_run_again_unless_forced(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--out", str(tmp_path / "deep" / "out")]
    assert gpu.main(["good", *where]) == 0
    assert gpu.main(["both", "good", *where]) == 0
    assert ran == ["good", "other"]
    assert gpu.main(["both", "--force", *where]) == 0
    assert ran == ["good", "other", "good", "other"]
    assert json.loads((tmp_path / "deep" / "out" / "good.json").read_text())["name"] == "good"
    last = capsys.readouterr().out.splitlines()[-3:]
    assert last[0].split() == ["good", "auras_over_seq", "2.5"]


def test_a_part_that_fails_does_not_stop_the_others_and_is_not_kept(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text("an old one")
    assert gpu.main(["bad", "silent", "other", "--force", "--out", str(tmp_path)]) == 1
    assert ran == ["bad", "silent", "other"]
    assert not (tmp_path / "bad.json").exists()
    said = capsys.readouterr().out
    assert "FAILED: it went wrong" in said
    assert "FAILED: no JSON" in said


def test_a_part_that_cannot_be_run_here_is_skipped_by_name_and_is_no_failure(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.main(["absent", "other", "--out", str(tmp_path)]) == 0
    assert ran == ["absent", "other"]
    assert "absent            skipped: wheels are not installed" in capsys.readouterr().out


def test_where_the_tests_fail_no_bench_is_run(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran.append("broken")
    assert gpu.main(["both", "tests", "--out", str(tmp_path)]) == 1
    assert ran == ["broken", "tests"]  # first, wherever it was named
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["tests             FAILED: it went wrong", gpu.UNTESTED]
    assert lines[-4:-2] == [f"{name:18}not run: the tests failed" for name in ("good", "other")]


def test_the_table_says_whether_the_tests_have_passed_here(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.main(["good", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == gpu.UNTESTED
    assert gpu.main(["tests", "good", "--out", str(tmp_path)]) == 0
    assert gpu.UNTESTED not in capsys.readouterr().out


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """The child holds a pipe open for as long as it lives."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(PartError, match="not done within 1 s"):
            gpu_process.call(["sh", "-c", f"(echo alive; exec sleep 300) >'{pipe}' & wait"], 1.0)
        assert os.read(reader, 100) == b"alive\n"
        assert select.select([reader], [], [], 30.0)[0] == [reader], "the child lives"
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_commands_status_is_its_own() -> None:
    assert gpu_process.call([sys.executable, "-c", "raise SystemExit(3)"], 60.0) == 3


def test_pytests_results_become_rows(tmp_path: Path) -> None:
    path = tmp_path / "results.xml"
    with pytest.raises(PartError, match="no results"):
        gpu_parts.read_results(path)
    path.write_text(JUNIT)
    report = gpu_parts.read_results(path)
    assert report.summary == {"passed": 1, "failed": 2, "skipped": 1}
    assert [row["outcome"] for row in report.rows] == ["passed", "failed", "skipped", "failed"]
    assert report.rows[0] == {"test": "tests.a::one", "outcome": "passed", "seconds": 0.5}


def test_the_tests_part_takes_the_files_with_gpu_tests_and_no_pass_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def call(command: list[str], limit_s: float) -> int:
        asked.append(command)
        (path,) = (word.partition("=")[2] for word in command if word.startswith("--junitxml="))
        Path(path).write_text('<testsuite><testcase classname="t" name="n" time="0"><skipped/></testcase></testsuite>')
        return 0

    monkeypatch.setattr(gpu_parts, "call", call)
    with pytest.raises(PartError, match="0 passed"):
        gpu_parts.gpu_tests(tmp_path / "tests.json")
    files = [Path(word).name for word in asked[0] if word.endswith(".py")]
    assert "test_cuda_gpu.py" in files
    assert "test_wire.py" not in files
    assert not (tmp_path / "tests.json").exists()
