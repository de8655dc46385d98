"""A node that is to run with keys and cannot says what to do, in one line, with status 2.

Guards: a traceback, and a supervisor that starts the process again and again. The RMW of the rclpy wheels has no DDS
security, and our layer has none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodes.wire import Children


@pytest.mark.parametrize("has_keystore", [False, True])
def test_enforced_security_that_is_not_there(
    children: Children, checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_keystore: bool
) -> None:
    enclave = tmp_path / "keystore" / "enclaves" / "actuator"
    enclave.mkdir(parents=True)
    for name in ("cert", "key", "identity_ca.cert", "permissions_ca.cert"):
        (enclave / f"{name}.pem").write_text("")
    for name in ("governance", "permissions"):
        (enclave / f"{name}.p7s").write_text("")
    monkeypatch.setenv("ROS_SECURITY_ENABLE", "true")
    monkeypatch.setenv("ROS_SECURITY_STRATEGY", "Enforce")
    monkeypatch.setenv("ROS_SECURITY_ENCLAVE_OVERRIDE", "/actuator")
    monkeypatch.setenv("ROS_SECURITY_KEYSTORE", str(tmp_path / "keystore") if has_keystore else "")
    child = children.node("actuator", {"checkpoint": checkpoint})
    assert child.wait() == 2
    [line] = [line for line in child.output.splitlines() if line.startswith("error: ")]
    assert "ROS_SECURITY_ENABLE" in line
    assert "Traceback" not in child.output
