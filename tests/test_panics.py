"""A panic of an extension module is an error like others: one line and status 2, a refused prompt, a living node.

Guards: pyo3's PanicException, which is no Exception: a traceback and status 1 of a command, a bare status 500 of the
server, a thread of the engine that ends without a word.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.tokenizer import PromptError, encode, read_tokenizer
from auras_ros.engine.reply import AnswerText
from auras_ros.nodes.common.loading import BackgroundLoad
from auras_ros.panics import ExtensionPanicError, is_panic, panic_text, raising_panics
from auras_ros.ros.callbacks import CallbackFailures
from auras_ros.ros.process import RefusedError, _refusals

tokenizers = pytest.importorskip("tokenizers")

HARD = "a" * 5000 + "!"  # for the regular expression below
BAD_MAP = base64.b64encode(b"\xff" * 8).decode()


def write_tokenizer(folder: Path, **parts: Any) -> Path:
    """A tokenizer of two words. parts: of tokenizer.json, in place of none."""
    values: dict[str, Any] = {"version": "1.0", "added_tokens": []}
    for name in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"):
        values[name] = parts.get(name)
    values["model"] = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(values))
    return path


def panicking_file(folder: Path) -> Path:
    return write_tokenizer(folder, normalizer={"type": "Precompiled", "precompiled_charsmap": BAD_MAP})


def panicking_split(folder: Path) -> Path:
    """A file that is read, and whose regular expression needs too many steps for `HARD`."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    return write_tokenizer(folder, pre_tokenizer=split)


def panic(folder: Path) -> BaseException:
    """A real one."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011
        tokenizers.Tokenizer.from_file(str(panicking_file(folder)))
    return raised.value


def test_a_panic_is_no_exception_and_is_known_by_its_class(tmp_path: Path) -> None:
    raised = panic(tmp_path)
    assert not isinstance(raised, Exception)
    assert is_panic(raised)
    assert not is_panic(KeyboardInterrupt())
    assert "\n" not in panic_text(raised)
    with pytest.raises(ExtensionPanicError, match="the library panicked: Precompiled"), raising_panics():
        raise raised
    with pytest.raises(KeyboardInterrupt), raising_panics():
        raise KeyboardInterrupt


def test_a_tokenizer_that_panics_when_it_is_read_is_refused_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"tokenizer\.json: not a tokenizer: the library panicked: Precompiled"):
        read_tokenizer(panicking_file(tmp_path))


def test_a_text_that_makes_a_tokenizer_panic_is_refused(tmp_path: Path) -> None:
    path = panicking_split(tmp_path)
    tokenizer = read_tokenizer(path)
    assert encode(tokenizer, "a", path) == [0]
    with pytest.raises(PromptError, match=r"tokenizer\.json cannot tokenize it: the library panicked: .*retry-limit"):
        encode(tokenizer, HARD, path)


def test_an_answer_that_makes_a_tokenizer_panic_is_an_error_of_the_engine(tmp_path: Path) -> None:
    raised = panic(tmp_path)

    class Panicking:
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            raise raised

    with pytest.raises(ExtensionPanicError):
        AnswerText(Panicking(), ()).push(0)


def test_a_node_refuses_to_start_with_status_2(tmp_path: Path) -> None:
    raised = panic(tmp_path)
    with pytest.raises(RefusedError, match="the library panicked") as refused, _refusals((), ()):
        raise raised
    assert refused.value.status == 2


def test_a_callback_that_panics_does_not_end_its_node(tmp_path: Path) -> None:
    raised, said = panic(tmp_path), list[str]()
    failures = CallbackFailures()

    def callback() -> None:
        raise raised

    with failures.guarded("a callback", said.append):
        callback()
    assert failures.count == 1
    assert "ExtensionPanicError: the library panicked" in said[0]


def test_what_panics_while_a_node_loads_is_refused(tmp_path: Path) -> None:
    raised = panic(tmp_path)

    def load(_: Any) -> None:
        raise raised

    with pytest.raises(ExtensionPanicError):
        BackgroundLoad(load).result.result(30)


def test_a_command_ends_with_status_2_and_one_line(tmp_path: Path) -> None:
    code = f"""
import sys, types
from tokenizers import Tokenizer
from auras_ros.cli import main as cli
planted = types.ModuleType("auras_ros.cli.run")
planted.run = lambda words: Tokenizer.from_file({str(panicking_file(tmp_path))!r})
sys.modules["auras_ros.cli.run"] = planted
sys.exit(cli.main(["run"]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    ours = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert len(ours) == 1
    assert ours[0].startswith("error: the library panicked: Precompiled: Error(")
    assert ended.stderr.splitlines()[-1] == ours[0]
