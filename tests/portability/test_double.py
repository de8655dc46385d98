"""The double of rclpy refuses what rclpy refuses, and has no signature that rclpy has not.

Guards: a double so lenient that the nodes would pass on it and break on a robot.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros.ros import dds
from tests.portability.conftest import HERE, on_the_double

WRONG = str(HERE / "children" / "wrong_calls.py")
SIGNATURES = HERE / "children" / "signatures.py"
# What the error must name, for some of them; of every other it is enough that there is one.
NAMED = {
    "unknown keyword": "rclpy.node.Node.create_publisher: got an unexpected keyword argument 'reliability'",
    "qos as text": "rclpy.node.Node.create_publisher: qos_profile: expected",
    "unknown method": "rclpy.node.Node has no attribute 'create_wall_timer'",
    "C++ name of a policy": "no policy 'best_effort'",
    "unknown field": "['text']",
    "int in a float sequence": "The 'data' field must be of type 'float'",
    "level as a number": "The 'level' field must be 'bytes' of length 1",
    "an attribute of rclpy's own": "Clashing._timers",
    "a jump handle let go of": "create_jump_callback",
    "publishing after shutdown": "context is invalid",
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the double said to each wrong call."""
    ran = on_the_double(WRONG)
    assert ran.returncode == 0, ran.stderr
    answers: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return answers


def test_every_wrong_call_is_refused(said: dict[str, str]) -> None:
    assert len(said) > 35
    assert [name for name, text in said.items() if not text] == []


@pytest.mark.parametrize("name", NAMED)
def test_the_refusal_names_the_call(said: dict[str, str], name: str) -> None:
    assert NAMED[name] in said[name]


def test_a_node_of_ours_that_misuses_rclpy_is_found_though_it_swallows_the_error(tmp_path: Path) -> None:
    """The report of a drive lists refusals even where nobody heard of them."""
    program = tmp_path / "swallow.py"
    program.write_text(
        "import rclpy, rclpy_control\n"
        "from rclpy.node import Node\n"
        "rclpy.init(args=[])\n"
        "try:\n"
        "    Node('a').create_timer('soon', print)\n"
        "except TypeError:\n"
        "    pass\n"
        "print(len(rclpy_control.report()['refused']))\n",
        encoding="utf-8",
    )
    assert on_the_double(str(program)).stdout.strip() == "1"


def test_the_double_has_no_signature_that_the_installed_rclpy_has_not() -> None:
    if importlib.util.find_spec("rclpy") is None:
        pytest.skip("rclpy is not installed: the double cannot be compared with it")
    ours = json.loads(on_the_double(str(SIGNATURES)).stdout)
    ran = subprocess.run(
        [sys.executable, str(SIGNATURES)], input=json.dumps(sorted(ours)), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    theirs = json.loads(ran.stdout)
    more = {name: [each for each in mine if each not in theirs[name]] for name, mine in ours.items()}
    assert {name: each for name, each in more.items() if each} == {}
    assert len(ours) > 100


def test_our_functions_take_no_word_that_rclpy_does_not_take() -> None:
    """Guards: a node that runs on our layer and ends on a robot with an unexpected keyword. create_node hands its own
    on to Node."""
    ran = on_the_double(str(SIGNATURES))
    assert ran.returncode == 0, ran.stderr
    theirs = {name.removeprefix("rclpy."): each for name, each in json.loads(ran.stdout.splitlines()[-1]).items()}
    for name in ("init", "ok", "shutdown", "spin", "spin_once", "spin_until_future_complete",
                 "try_shutdown"):  # fmt: skip
        known = {word.lstrip("*").partition("=")[0] for word in theirs[name]}
        assert set(inspect.signature(getattr(dds, name)).parameters) <= known, name
