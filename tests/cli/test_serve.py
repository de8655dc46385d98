"""`auras serve`: one line when it is ready, one line when it cannot be, status 0 when it is told to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("transformers")

import torch

from auras_ros.cli import main as cli
from auras_ros.cli.serve import ENGINE_HELP
from auras_ros.serve.options import ENGINE, make_options, read_options
from tests.checkpoints.vlm.folders import write

ROOT = Path(__file__).resolve().parents[2]
SERVE = (sys.executable, "-m", "auras_ros.cli.main", "serve")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    with torch.no_grad():
        write("llava", path)
    return path


def test_it_serves_a_config_with_a_token_until_it_is_told_to_stop(folder: Path) -> None:
    """The token is in a file, and a request is in flight when the signal comes."""
    (folder.parent / "token").write_text("secret\n")
    config = folder.parent / "config.yaml"
    config.write_text(f"model: {folder.name}\nkv_mib: 8\nname: small\ntoken_file: token\nport: 8000\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*SERVE, str(config), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line.startswith("serving small (float32) at http://127.0.0.1:"), (line, server.stderr)
        url = line.split()[4].rstrip(";")
        body = json.dumps({"prompt": "the", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
        headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/completions", body, headers)) as answer:
            assert answer.readline().startswith(b"data: ")
            server.send_signal(signal.SIGTERM)
            assert b'"code": "cancelled"' in answer.read()
        out, error = server.communicate(timeout=60)
    assert (server.returncode, out, error) == (0, "stopped\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nowhere"], "error: checkpoint 'nowhere': no such folder in "),
        (["."], "config.json"),
        ([".", "--port", "70000"], "error: serve: port: must be in [0, 65535], got 70000\n"),
        ([".", "--running", "0"], "error: engine: running: 0 is not a whole number from 1\n"),
        ([".", "--cores", "-1"], "error: serve: cores: expected core numbers, got (-1,)\n"),
        (["bad.yaml"], "bad.yaml:2: no option 'runing'; did you mean running?\n"),
        (["worse.yaml"], "worse.yaml:1: engine: chunked: expected bool, got 'often'\n"),
        ([".", "--token-file", "empty"], "error: empty: expected one token of printable ASCII"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("model: .\nruning: 3\n")
    (tmp_path / "worse.yaml").write_text("chunked: often\n")
    (tmp_path / "empty").write_text("")
    assert cli.main(["serve", *words]) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_a_port_in_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.main(["serve", str(tmp_path), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"error: 127.0.0.1:{port}: Address already in use\n"


def test_a_missing_extra_is_answered_with_its_pip_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.startswith("auras_ros.serve.") and "options" not in each]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert cli.main(["serve", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "error: 'auras serve' needs the package 'fastapi': pip install 'auras_ros[serve]'\n"
    )


def test_every_option_of_the_engine_is_explained() -> None:
    assert set(ENGINE_HELP) == set(ENGINE)


def test_a_config_has_the_options_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model: folder\nscheduler: chunk:64\nprefix_cache: false\nport: 1\n")
    options, engine = make_options(read_options(path) | {"port": 2, "kv_mib": 3})
    assert (options.model, options.port) == (str(tmp_path / "folder"), 2)
    assert (engine.scheduler, engine.prefix_cache, engine.kv_mib) == ("chunk:64", False, 3)
