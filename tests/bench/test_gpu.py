"""`make gpu`: without a GPU it says so; parts can be taken up again; one that fails or hangs does not stop the rest."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench import gpu, gpu_parts, gpu_process
from auras_ros.bench.gpu_parts import GpuPart
from auras_ros.bench.gpu_process import PartError, PartSkippedError
from auras_ros.report.result import Report

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
    assert done.returncode == (2 if part else 0)
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]
    assert len(ours) == 1
    assert ours[0].startswith("make gpu: no GPU to run on: device 'cuda': ")
    assert all(name in done.stdout for name in gpu.PARTS) == (part == "")
    assert not (tmp_path / "o").exists()


def test_an_unknown_part_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["warp"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("make gpu: no part 'warp'; known: ")
    assert all(name in error for name in [*gpu.PARTS, *gpu.GROUPS])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Parts that write a JSON, or end otherwise; the list says which ran."""
    names: list[str] = []

    def part(name: str) -> GpuPart:
        def run(path: Path) -> None:
            names.append(name)
            if name == "bad" or (name == "tests" and "broken" in names):
                raise PartError("it went wrong")
            if name == "absent":
                raise PartSkippedError("wheels are not installed")
            if name != "silent":
                Report(name, summary={"auras_over_seq": 2.5, "n": 7, "passed": 1}).write(path)

        return GpuPart(f"the {name} part", run, shown=("*_over_*",))

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


@pytest.mark.parametrize("torn", ['{"name": "good", "summary": {"auras_over', '{"summary": {}}', "[]"])
def test_what_is_no_report_is_run_again(
    ran: list[str], tmp_path: Path, torn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "tests"):
        (tmp_path / f"{name}.json").write_text(torn)
    assert gpu.main(["good", "--out", str(tmp_path)]) == 0
    assert ran == ["good"]
    assert capsys.readouterr().out.splitlines()[-2].split() == ["good", "auras_over_seq", "2.5"]
    (tmp_path / "good.json").write_text(torn)
    assert "no JSON" in gpu.table(["good"], tmp_path, {})


def test_an_interrupted_run_shows_what_is_there(
    ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(gpu.PARTS, "other", GpuPart("ends early", interrupted))
    assert gpu.main(["both", "--out", str(tmp_path)]) == gpu.INTERRUPTED
    said = capsys.readouterr()
    assert "good              auras_over_seq 2.5" in said.out
    assert "other             no JSON" in said.out
    assert "the same command continues" in said.err


def test_where_nothing_can_be_written_it_says_so(
    ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a file"
    out.write_text("")
    assert gpu.main(["good", "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith(f"make gpu: OUT={out}: ")
    assert ran == []


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


@pytest.mark.parametrize("other", ["gpu", "version", "sources"])
def test_tests_that_passed_elsewhere_do_not_count_and_are_run_again(
    other: str, ran: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu.main(["tests", "good", "--out", str(tmp_path)]) == 0
    if other == "gpu":
        monkeypatch.setattr(gpu, "hardware", lambda: {"gpu": "another"})
    elif other == "version":
        monkeypatch.setattr(gpu, "versions", lambda: {"torch": "9"})
    else:
        monkeypatch.setattr(gpu, "digest", lambda: "another")
    assert gpu.main(["good", "--out", str(tmp_path)]) == 0
    good, last = capsys.readouterr().out.splitlines()[-2:]
    assert last == gpu.UNTESTED
    assert gpu.ELSEWHERE in good
    assert gpu.main(["tests", "good", "--out", str(tmp_path)]) == 0
    assert ran == ["tests", "good", "tests"]


def test_kernels_and_tests_are_among_the_sources() -> None:
    found = {str(file.relative_to(ROOT)) for file in gpu_parts.sources()}
    assert {"auras_ros/kernels/__init__.py", "auras_ros/bench/gpu.py", "tests/device/test_cuda_gpu.py"} <= found


def test_the_sources_digest_changes_with_any_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "auras_ros" / "deep").mkdir(parents=True)
    monkeypatch.setattr(gpu_parts, "ROOT", tmp_path)
    found = [gpu_parts.digest()]
    for name, text in {"a.py": "1", "deep/b.py": "2", "a.py ": "3"}.items():
        (tmp_path / "auras_ros" / name.strip()).write_text(text)
        found.append(gpu_parts.digest())
    (tmp_path / "auras_ros" / "notes.txt").write_text("no source")
    assert len(set(found)) == 4
    assert gpu_parts.digest() == found[-1]


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    """The child holds a pipe open for as long as it lives."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for limit_s in (1.0, 5.0, 25.0):  # the child may be killed before it has said a word
            with pytest.raises(PartError, match=f"not done within {limit_s:g} s"):
                gpu_process.call(["sh", "-c", f"(echo alive; exec sleep 300) >'{pipe}' & wait"], limit_s)
            if said := os.read(reader, 100):
                break
        assert said == b"alive\n"
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
    rows = gpu_parts.read_results(path)
    assert [row["outcome"] for row in rows] == ["passed", "failed", "skipped", "failed"]
    assert rows[0] == {"test": "tests.a::one", "outcome": "passed", "seconds": 0.5}


@pytest.fixture
def pytests(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, Any]]:
    """pytest without a GPU: which files it was given; and, by a file's name, its status and what outcome it leaves."""
    asked: list[str] = []
    ends: dict[str, tuple[int, str | None]] = {"*": (0, "")}

    def call(command: list[str], limit_s: float) -> int:
        assert 0 < limit_s <= gpu_process.LIMIT_S
        (path,) = (word.partition("=")[2] for word in command if word.startswith("--junitxml="))
        asked.append(Path(command[-1]).name)
        status, outcome = ends.get(asked[-1], ends["*"])
        if outcome is not None:
            Path(path).write_text(
                f'<testsuite><testcase classname="t" name="n" time="0">{outcome}</testcase></testsuite>'
            )
        return status

    monkeypatch.setattr(gpu_parts, "call", call)
    return asked, ends


def test_the_tests_part_runs_each_file_with_gpu_tests_in_a_process_of_its_own(
    tmp_path: Path, pytests: tuple[list[str], dict[str, Any]]
) -> None:
    asked, _ = pytests
    gpu_parts.gpu_tests(tmp_path / "tests.json")
    assert "test_cuda_gpu.py" in asked
    assert "test_wire.py" not in asked
    assert len(set(asked)) == len(asked) > 5
    kept = json.loads((tmp_path / "tests.json").read_text())
    assert kept["summary"] == {"passed": len(asked), "failed": 0, "skipped": 0}


@pytest.mark.parametrize(
    ("status", "leaves", "said"),
    [
        (1, "<failure/>", "t::n"),
        (139, None, "tests/device/test_cuda_gpu.py: pytest left no results"),
        (2, "", "tests/device/test_cuda_gpu.py: pytest ended with status 2"),
    ],
)
def test_a_file_that_fails_is_named_and_the_others_are_run_and_kept(
    status: int, leaves: str | None, said: str, tmp_path: Path, pytests: tuple[list[str], dict[str, Any]]
) -> None:
    asked, ends = pytests
    ends["test_cuda_gpu.py"] = status, leaves
    with pytest.raises(PartError, match=f" passed, 1 failed: {re.escape(said)}$"):
        gpu_parts.gpu_tests(tmp_path / "tests.json")
    kept = json.loads((tmp_path / "tests.json").read_text())
    assert kept["summary"] == {"passed": len(asked) - 1, "failed": 1, "skipped": 0}
    assert [row["test"] for row in kept["rows"] if row["outcome"] == "failed"] == [said]
    assert not gpu.passed_here(tmp_path)


def test_a_file_that_asks_for_a_package_that_is_not_there_is_skipped(
    tmp_path: Path, pytests: tuple[list[str], dict[str, Any]]
) -> None:
    asked, ends = pytests
    ends["test_x_decoder_capturable.py"] = gpu_parts.NOTHING_COLLECTED, "<skipped/>"
    gpu_parts.gpu_tests(tmp_path / "tests.json")
    assert json.loads((tmp_path / "tests.json").read_text())["summary"]["skipped"] == 1
    assert len(asked) > 5


def test_tests_that_were_all_skipped_have_not_passed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pytests: tuple[list[str], dict[str, Any]],
) -> None:
    pytests[1]["*"] = 0, "<skipped/>"
    monkeypatch.setattr(gpu, "require_cuda", lambda: None)
    assert gpu.main(["tests", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "FAILED: 0 passed, 0 failed" in said
    assert gpu.UNTESTED in said
    assert not gpu.passed_here(tmp_path)


def test_another_package_of_that_name_would_be_tested_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytests: tuple[list[str], dict[str, Any]]
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PartError, match=r"tests/__init__\.py hides this repository's tests"):
        gpu_parts.gpu_tests(tmp_path / "tests.json")
    assert pytests[0] == []
