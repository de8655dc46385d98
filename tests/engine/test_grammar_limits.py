"""Which grammars are refused by their text, and that a child process bounds what the text does not tell."""

from __future__ import annotations

import json
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.grammar_limits import check_text
from auras_ros.engine.grammar_trial import GrammarTrials
from auras_ros.engine.request import EngineClosedError, Grammar, InvalidRequestError
from auras_ros.installed_ros import __file__ as PACKAGE_FILE

TOKENIZER = Path(PACKAGE_FILE).parents[1] / "checkpoints" / "pusht-vlm" / "tokenizer.json"
LONG_S = 30.0


def integer(multiple: object, **others: Any) -> dict[str, Any]:
    return {"type": "integer", "multipleOf": multiple, **others}


REFUSED: list[tuple[object, str]] = [
    (integer(1_000_003), "multipleOf: 1000003, expected 10000 at most"),
    (integer(2_000_003), "multipleOf: 2000003, expected 10000 at most"),
    (integer(5_000_011), "multipleOf: 5000011, expected 10000 at most"),
    (integer(1e300), "multipleOf: 1E+300, expected 10000 at most"),
    (integer(1000.003), "multipleOf: 1000.003, expected 10.000 at most with 3 decimals"),
    (integer(1e-30), "multipleOf: 1E-30: 30 decimals, expected 10 at most"),
    ({"allOf": [{"type": "integer"}, {"multipleOf": 1_000_003}]}, "multipleOf: 1000003"),
    ({"$defs": {"a": integer(1_000_003)}, "$ref": "#/$defs/a"}, "multipleOf: 1000003"),
    ({"type": "array", "items": integer(1_000_003)}, "multipleOf: 1000003"),
    ({"properties": {"default": integer(1_000_003)}}, "multipleOf: 1000003"),
    ({"type": "string", "minLength": 2_000_000}, "minLength: 2000000, expected 1048576 at most"),
    ({"type": "array", "minItems": 2_000_000}, "minItems: 2000000, expected 1048576 at most"),
    ({"enum": list(range(5000))}, "enum: 5000 values, expected 4096 at most"),
    ({"type": "string", "description": "x" * 70_000}, "characters, expected 65536 at most"),
]


@pytest.mark.parametrize(("schema", "text"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_keyword_beyond_its_limit_is_named_with_its_value(schema: object, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        check_text("json_schema", json.dumps(schema))
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        integer(10_000),
        {"type": "number", "multipleOf": 0.01},
        {"type": "number", "multipleOf": 5.00},
        {"properties": {"multipleOf": {"const": {"multipleOf": 1_000_003}}}},
        {"properties": {"minLength": {"type": "integer"}}, "default": {"minLength": 5_000_000}},
        {"enum": [{"multipleOf": 1_000_003}]},
        {"multipleOf": True},
        True,
    ],
    ids=str,
)
def test_what_is_data_and_what_is_small_is_allowed(schema: object) -> None:
    check_text("json_schema", json.dumps(schema))


def test_a_schema_that_is_nested_deeply_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        check_text("json_schema", "[" * 30_000)


@pytest.fixture(scope="module")
def trials() -> Iterator[GrammarTrials]:
    pytest.importorskip("llguidance")
    made = GrammarTrials(TOKENIZER.read_text(), [0])
    yield made
    made.close()


def test_a_grammar_is_tried_once(trials: GrammarTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Grammar("json_schema", '{"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 9973}}}')
    trials.check(schema)
    with monkeypatch.context() as patch:
        patch.setattr(trials, "_ask", lambda grammar: pytest.fail("it was asked again"))
        trials.check(schema)


@pytest.mark.parametrize("multiple", [1_000_003, 2_000_003, 5_000_011])
def test_what_passes_the_rule_of_the_text_is_ended_in_the_child(trials: GrammarTrials, multiple: int) -> None:
    """As if no rule knew `multipleOf`: it took up to a minute and 1.6 GB. The next grammar needs no new process."""
    trials.check(Grammar("json_schema", '{"type": "object"}'))
    pid = trials.pid
    began = time.monotonic()
    with pytest.raises(InvalidRequestError, match=r"^json_schema: it is too complex: it takes more than"):
        trials.check(Grammar("json_schema", json.dumps(integer(multiple))))
    assert time.monotonic() - began < LONG_S
    trials.check(Grammar("regex", "yes|no"))
    assert trials.pid == pid


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "allOf": [{"multipleOf": 997}, {"multipleOf": 991}]},
        {"type": "object", "properties": {f"p{number}": integer(9001 + 2 * number) for number in range(100)}},
    ],
    ids=["product", "many"],
)
def test_several_allowed_multiples_cannot_make_a_large_one(trials: GrammarTrials, schema: object) -> None:
    text = json.dumps(schema)
    check_text("json_schema", text)
    with pytest.raises(InvalidRequestError, match="it is too complex: it takes more than"):
        trials.check(Grammar("json_schema", text))


def test_a_large_schema_of_plain_keywords_passes(trials: GrammarTrials) -> None:
    fields = {f"property_{number}": {"enum": [f"value{number}_{value}" for value in range(5)]} for number in range(600)}
    text = json.dumps({"type": "object", "properties": fields, "additionalProperties": False})
    assert 50_000 < len(text) < 65_536
    trials.check(Grammar("json_schema", text))


def test_the_child_is_small_and_runs_below_the_engine(trials: GrammarTrials) -> None:
    """It imports no torch, whose mapping alone is hundreds of megabytes."""
    trials.check(Grammar("regex", "yes|no"))
    status = Path(f"/proc/{trials.pid}/status").read_text()
    resident_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident_kib < 100 << 10
    from auras_ros.engine.grammar_child import NICE

    assert "torch" not in Path(f"/proc/{trials.pid}/maps").read_text()
    lowest, own = 19, os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, trials.pid or 0) == min(own + NICE, lowest)


def test_a_child_that_died_is_replaced(trials: GrammarTrials) -> None:
    trials.check(Grammar("regex", "a|b"))
    pid = trials.pid
    assert pid is not None
    os.kill(pid, 9)
    with pytest.raises(InvalidRequestError, match=r"^regex: it was not compiled: .* SIGKILL"):
        trials.check(Grammar("regex", "c|d"))
    trials.check(Grammar("regex", "c|d"))
    assert trials.pid not in (None, pid)


def test_closing_does_not_wait_for_a_grammar_that_compiles() -> None:
    pytest.importorskip("llguidance")
    trials, ended = GrammarTrials(TOKENIZER.read_text(), [0]), threading.Event()

    def check() -> None:
        with pytest.raises((EngineClosedError, InvalidRequestError)):
            trials.check(Grammar("json_schema", json.dumps(integer(5_000_011))))
        ended.set()

    thread = threading.Thread(target=check)
    thread.start()
    while trials.pid is None:
        time.sleep(0.002)
    trials.close()
    assert ended.wait(LONG_S)
    thread.join()
    with pytest.raises(EngineClosedError):
        trials.check(Grammar("regex", "a"))


def test_the_limits_of_a_fork_are_kept_by_the_kernel() -> None:
    """The memory beyond what the process has, and its CPU time."""
    pytest.importorskip("llguidance")
    from auras_ros.engine.grammar_child import MOST_MIB, limit_this_process

    process = os.fork()
    if process == 0:
        try:
            limit_this_process()
            try:
                mmap.mmap(-1, 4 * MOST_MIB << 20)
                os._exit(1)
            except OSError:
                while True:
                    pass
        finally:
            os._exit(2)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGPROF
