"""The one JSON form of every result.

Guards: a key that a reader relies on; a file left half written.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.report import result
from auras_ros.report.result import Report, hardware, versions


def test_the_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/venv/bin/auras", "bench", "ros", "--json", "out.json"])
    made = Report("ros", [{"hz": 30, "p50_ms": 0.4}], {"image_latency_ms_p50": 0.4})
    made.write(tmp_path / "out.json")
    read = json.loads((tmp_path / "out.json").read_text())
    assert list(read) == ["name", "command", "date", "hardware", "versions", "rows", "summary"]
    assert read["name"] == "ros"
    assert read["command"] == "auras bench ros --json out.json"
    assert read["rows"] == [{"hz": 30, "p50_ms": 0.4}]
    assert read["summary"] == {"image_latency_ms_p50": 0.4}
    age = datetime.now(timezone.utc) - datetime.fromisoformat(read["date"])
    assert timedelta(0) <= age < timedelta(minutes=5)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.json"]


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    Report("first").write(path)
    before = path.read_text()
    with pytest.raises(TypeError):
        Report("second", [{"bad": object()}]).write(path)
    assert path.read_text() == before
    with pytest.raises(FileNotFoundError):
        Report("third").write(tmp_path / "nowhere" / "out.json")


def test_a_report_cut_off_while_being_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "out.json", Path.write_text
    Report("first").write(path)
    before = path.read_text()

    def full(self: Path, data: str, **options: str) -> int:
        real(self, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        Report("second").write(path)
    assert path.read_text() == before


def test_two_reports_share_no_rows() -> None:
    Report("a").rows.append({"x": 1})
    assert Report("b").rows == []


def test_hardware_says_cores_memory_and_kernel() -> None:
    found = hardware()
    assert found["cores"] >= 1
    assert found["memory_gib"] > 0
    assert found["cpu"]
    assert found["kernel"]
    assert set(found) - {"cuda_device_max_connections"} == {"cpu", "cores", "memory_gib", "kernel", "gpu"}


def test_hardware_with_a_gpu_says_which_and_how_many_connections_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = SimpleNamespace(is_available=lambda: True, get_device_name=lambda index: f"GPU {index}")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    found = hardware()
    assert found["gpu"] == "GPU 0"
    assert found["cuda_device_max_connections"] == "32"


def test_hardware_without_cpuinfo_still_names_the_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "CPUINFO", tmp_path / "none")
    assert hardware()["cpu"]


def test_versions_name_what_is_installed_and_leave_out_what_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result, "PACKAGES", ("numpy", "surely-not-installed"))
    found = versions()
    assert set(found) == {"auras_ros", "python", "numpy"}
    assert found["python"].startswith("3.")
