"""`auras doctor` on the host: each check with facts laid out for it, as the kernel and the environment give them.

Guards: a check that finds everything well whatever there is; advice that leaves out the command.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from auras_ros.cli.doctor import host
from auras_ros.cli.doctor.finding import Finding, Verdict


def is_ok(finding: Finding, *words: str) -> None:
    assert finding.status is Verdict.OK, finding
    assert all(word in finding.text for word in words), finding


def is_note(finding: Finding, *words: str) -> None:
    assert finding.status is Verdict.NOTE, finding
    assert all(word in f"{finding.text} | {finding.remedy}" for word in words), finding


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in the place of /sys and /proc, with nothing in it, and an environment that says nothing."""
    monkeypatch.setattr(host, "PROCESSORS", tmp_path / "cpu")
    monkeypatch.setattr(host, "MARKS", (tmp_path / ".dockerenv", tmp_path / ".containerenv"))
    for name in ("REALTIME", "RECEIVE_BUFFER", "STATUS", "FIRST_PROCESS"):
        monkeypatch.setattr(host, name, tmp_path / name.lower())
    monkeypatch.delenv("container", raising=False)
    return tmp_path


def test_a_kernel_for_real_time_and_one_that_is_not(system: Path) -> None:
    is_note(host.kernel(), "not PREEMPT_RT", "linux-image-rt-amd64", "pro enable realtime-kernel")
    (system / "realtime").write_text("0\n")
    is_note(host.kernel(), "not PREEMPT_RT")
    (system / "realtime").write_text("1\n")
    is_ok(host.kernel(), "PREEMPT_RT")


def test_cores_set_aside(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    is_ok(host.isolated_cores(), "too few to reserve one")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    is_note(host.isolated_cores(), "none of 8", "isolcpus=7 nohz_full=7 rcu_nocbs=7", "update-grub")
    (system / "cpu").mkdir()
    (system / "cpu" / "isolated").write_text("\n")
    is_note(host.isolated_cores(), "none of 8")
    (system / "cpu" / "isolated").write_text("6-7\n")
    is_ok(host.isolated_cores(), "6-7", "taskset -c 6-7")


def test_the_clock_of_each_core(system: Path) -> None:
    is_ok(host.governor(), "no frequency governor")
    for core, name in enumerate(("performance", "performance", "powersave")):
        (system / "cpu" / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        (system / "cpu" / f"cpu{core}" / "cpufreq" / "scaling_governor").write_text(f"{name}\n")
    is_note(host.governor(), "performance on 2, powersave on 1", "cpupower frequency-set -g performance")
    (system / "cpu" / "cpu2" / "cpufreq" / "scaling_governor").write_text("performance\n")
    is_ok(host.governor(), "performance on 3")


def test_buffers_for_images(system: Path) -> None:
    is_ok(host.receive_buffer(), "unknown")
    (system / "receive_buffer").write_text("212992\n")
    is_note(host.receive_buffer(), "208 KiB", "net.core.rmem_max=2147483647", "/etc/sysctl.d/60-dds.conf")
    (system / "receive_buffer").write_text("4194304\n")
    is_ok(host.receive_buffer(), "4096 KiB")


@pytest.mark.parametrize(("mib", "enough"), [(64, False), (255, False), (256, True)])
def test_shared_memory(monkeypatch: pytest.MonkeyPatch, mib: int, enough: bool) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=mib << 8, f_frsize=4096))
    if enough:
        is_ok(host.shared_memory(), f"{mib} MiB")
    else:
        is_note(host.shared_memory(), f"{mib} MiB", "--ipc=host", "remount,size=1g")


def test_no_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "SHARED_MEMORY", tmp_path / "shm")
    is_note(host.shared_memory(), "No such file or directory", "mount -t tmpfs")


NICE, LOCK = 1 << 23, 1 << 14


@pytest.mark.parametrize(
    ("capabilities", "missing"),
    [(0, "SYS_NICE and IPC_LOCK"), (NICE, "IPC_LOCK"), (LOCK, "SYS_NICE"), (NICE | LOCK, "")],
)
def test_the_flags_of_a_container(system: Path, capabilities: int, missing: str) -> None:
    (system / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities:016x}\nCapBnd:\tffffffffffffffff\n")
    is_ok(host.container(), "none")
    (system / ".dockerenv").touch()
    if missing:
        is_note(host.container(), f"without {missing}:", "--ulimit rtprio=98", "--cap-add=SYS_NICE", "--network=host")
    else:
        is_ok(host.container(), "with SYS_NICE and IPC_LOCK")
    assert host.may_lock_memory() == bool(capabilities & LOCK)


@pytest.mark.parametrize("how", ["docker", "podman", "cgroup", "variable"])
def test_a_container_is_recognised(system: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    assert host.container().text == "none"
    (system / "first_process").write_text("0::/init.scope\n")
    assert host.container().text == "none"
    if how == "variable":
        monkeypatch.setenv("container", "lxc")
    elif how == "cgroup":
        (system / "first_process").write_text("0::/kubepods/besteffort/pod1\n")
    else:
        (system / {"docker": ".dockerenv", "podman": ".containerenv"}[how]).touch()
    assert host.container().text != "none"


def test_every_check_runs_on_this_machine() -> None:
    """Whatever it finds: the facts are read as this kernel writes them."""
    assert [check().name for check in host.CHECKS] == [
        "kernel", "isolated cores", "CPU clock", "image buffers", "shared memory", "container",
    ]  # fmt: skip
