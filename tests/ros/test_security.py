"""DDS security is never ignored silently: if enforced, the start is refused; if permissive, it is a warning."""

from __future__ import annotations

import ctypes as ct
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros import ros
from auras_ros.exit_status import BAD_SETTINGS
from auras_ros.ros.dds import library as dds
from auras_ros.ros.dds import qos, security
from tests.ros.conftest import ROOT

ON = {security.ENABLE: "true"}
PLUGINS = {
    f"dds.sec.{kind}.library.{part}": value
    for kind, name, function in (
        ("auth", "dds_security_auth", "authentication"),
        ("access", "dds_security_ac", "access_control"),
        ("crypto", "dds_security_crypto", "crypto"),
    )
    for part, value in (("path", name), ("init", f"init_{function}"), ("finalize", f"finalize_{function}"))
}


@pytest.mark.parametrize("environment", [{}, {security.ENABLE: ""}, {security.ENABLE: "false"},
                                         {security.STRATEGY: "Enforce"}, {security.STRATEGY: "enforce"}])  # fmt: skip
def test_nothing_is_said_where_nothing_is_asked(environment: dict[str, str]) -> None:
    assert security.check(environment) == ""


@pytest.mark.parametrize("strategy", [{}, {security.STRATEGY: "Permissive"}, {security.STRATEGY: ""}])
def test_permissive_is_a_warning(strategy: dict[str, str]) -> None:
    assert "this node has no keys" in security.check(ON | strategy)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        (ON | {security.STRATEGY: "Enforce"}, "built without DDS security"),
        ({security.ENABLE: "True"}, "ROS_SECURITY_ENABLE is 'True', expected false or true"),
        ({security.ENABLE: "1"}, "ROS_SECURITY_ENABLE is '1'"),
        (ON | {security.STRATEGY: "enforce"}, "ROS_SECURITY_STRATEGY is 'enforce', expected Permissive or Enforce"),
    ],
)  # fmt: skip
def test_what_is_enforced_or_misspelt_is_refused(environment: dict[str, str], named: str) -> None:
    with pytest.raises(security.SecurityError, match=named):
        security.check(environment)


def test_a_context_warns_once_and_works(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], domain: int
) -> None:
    monkeypatch.setenv(security.ENABLE, "true")
    context = ros.Context()
    ros.init(args=[], context=context, domain_id=domain)
    try:
        assert context.participant.gid
    finally:
        ros.try_shutdown(context=context)
    assert capfd.readouterr().err.count("this node has no keys") == 1


def test_a_context_that_is_refused_is_not_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (ON | {security.STRATEGY: "Enforce"}).items():
        monkeypatch.setenv(name, value)
    context = ros.Context()
    with pytest.raises(security.SecurityError):
        ros.init(args=[], context=context)
    assert not context.ok()


@pytest.mark.parametrize(
    "environment",
    [ON | {security.STRATEGY: "Enforce"}, {"ROS_AUTOMATIC_DISCOVERY_RANGE": "PLANET"}],
    ids=["security", "range"],
)
def test_a_node_ends_with_status_2_and_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    """Guards: a node that runs open where keys were demanded, and a supervisor that starts it again for ever."""
    ran = subprocess.run(
        [sys.executable, "-m", "auras_ros.nodes.actuator.node"], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    assert ran.returncode == BAD_SETTINGS
    assert next(iter(environment)) in ran.stderr
    assert "Traceback" not in ran.stderr


def test_this_libddsc_really_has_no_security(domain: int) -> None:
    """The day that a wheel comes with it, this fails, and the refusal has to become support."""
    set_property = dds.declare(dds._LIBRARY, "dds_qset_prop", None, ct.c_void_p, ct.c_char_p, ct.c_char_p)
    with qos.dds_qos() as properties:
        plain = dds.create_participant(domain, properties, None)
        for name, value in PLUGINS.items():
            set_property(properties, name.encode(), value.encode())
        secured = dds.create_participant(domain, properties, None)
    dds.delete(plain)
    assert plain > 0
    assert secured < 0
    assert not list(dds._library_path().parent.glob("*dds_security*"))
