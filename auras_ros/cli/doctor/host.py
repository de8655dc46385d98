"""`auras doctor` on what fixed rates and large images need of a host: kernel, cores, clock, buffers, container.

No check changes anything, and none of them must be met to run: docs/realtime.md explains each of them and has the
commands in full.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from pathlib import Path

from auras_ros.cli.doctor.finding import Check, Finding, note, ok

PROCESSORS = Path("/sys/devices/system/cpu")
REALTIME = Path("/sys/kernel/realtime")  # exists and is 1 with PREEMPT_RT
RECEIVE_BUFFER = Path("/proc/sys/net/core/rmem_max")
STATUS = Path("/proc/self/status")
SHARED_MEMORY = Path("/dev/shm")
FIRST_PROCESS = Path("/proc/1/cgroup")
MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))  # Docker's and Podman's
ENGINES = re.compile(r"docker|kubepods|containerd|libpod|lxc")
CAP_IPC_LOCK, CAP_SYS_NICE = 14, 23
CORES_TO_SPARE = 4  # with at least this many cores, one can be reserved
RECEIVE_WANTED = 4 << 20  # four raw 640x480 colour images
SHARED_WANTED = 256 << 20  # Docker's default is 64 MiB
CONTAINER_FLAGS = (
    "--network=host --ipc=host --ulimit rtprio=98 --ulimit memlock=-1 --cap-add=SYS_NICE --cap-add=IPC_LOCK"
)


def kernel() -> Finding:
    """Whether the kernel bounds how long a ready thread waits."""
    release = platform.release()
    if _line(REALTIME) == "1":
        return ok("kernel", f"{release}, PREEMPT_RT")
    remedy = (
        "not needed for a simulator; for a robot, Debian: sudo apt-get install -y linux-image-rt-amd64; "
        "Ubuntu: sudo pro enable realtime-kernel"
    )
    return note("kernel", f"{release} is not PREEMPT_RT: single ticks may come milliseconds late under load", remedy)


def isolated_cores() -> Finding:
    """Whether a core is isolated from other work."""
    isolated, count = _line(PROCESSORS / "isolated"), os.cpu_count() or 1
    if isolated:
        return ok("isolated cores", f"{isolated}; start the actuator there: taskset -c {isolated} ...")
    if count < CORES_TO_SPARE:
        return ok("isolated cores", f"none; {count} cores are too few to reserve one")
    last = count - 1
    remedy = (
        f"keep core {last} for the actuator: append 'isolcpus={last} nohz_full={last} rcu_nocbs={last}' to "
        "GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub and reboot"
    )
    return note("isolated cores", f"none of {count}", remedy)


def governor() -> Finding:
    """Whether cores keep their clock rate between two ticks."""
    found = Counter(_line(path) for path in PROCESSORS.glob("cpu[0-9]*/cpufreq/scaling_governor"))
    if not found:
        return ok("CPU clock", "no frequency governor on this system")
    text = ", ".join(f"{name} on {count}" for name, count in sorted(found.items()))
    if set(found) == {"performance"}:
        return ok("CPU clock", text)
    return note("CPU clock", f"governor {text}: a core wakes slowly", "sudo cpupower frequency-set -g performance")


def receive_buffer() -> Finding:
    """Whether the burst of datagrams of a raw image fits into a socket's buffer."""
    text = _line(RECEIVE_BUFFER)
    if not text:
        return ok("image buffers", "unknown (this process has its own network namespace)")
    if int(text) >= RECEIVE_WANTED:
        return ok("image buffers", f"net.core.rmem_max is {int(text) >> 10} KiB")
    return note(
        "image buffers",
        f"net.core.rmem_max is {int(text) >> 10} KiB: raw images from other processes will lose fragments",
        "echo 'net.core.rmem_max=2147483647' | sudo tee /etc/sysctl.d/60-dds.conf && sudo sysctl --system",
    )


def shared_memory() -> Finding:
    """Whether shared-memory transports (Fast DDS, iceoryx) and torch's workers have room."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError as error:
        remedy = f"sudo mount -t tmpfs -o size=1g tmpfs {SHARED_MEMORY}"
        return note("shared memory", f"{SHARED_MEMORY}: {error.strerror}", remedy)
    size = found.f_blocks * found.f_frsize
    text = f"{SHARED_MEMORY} has {size >> 20} MiB"
    if size >= SHARED_WANTED:
        return ok("shared memory", text)
    remedy = f"sudo mount -o remount,size=1g {SHARED_MEMORY}; a container needs --ipc=host or --shm-size=1g"
    return note("shared memory", text, remedy)


def container() -> Finding:
    """In a container: whether it was started with the options that a fixed rate and discovery need."""
    if not _in_container():
        return ok("container", "none")
    missing = [
        name for name, bit in (("SYS_NICE", CAP_SYS_NICE), ("IPC_LOCK", CAP_IPC_LOCK)) if not _capabilities() >> bit & 1
    ]
    if not missing:
        return ok("container", "with SYS_NICE and IPC_LOCK; other machines are found only with --network=host")
    text = f"started without {' and '.join(missing)}: fixed rates suffer, unless the limits are raised"
    return note("container", text, f"docker run {CONTAINER_FLAGS}")


def may_lock_memory() -> bool:
    """Whether this process may lock memory beyond its limit."""
    return bool(_capabilities() >> CAP_IPC_LOCK & 1)


def _line(path: Path) -> str:
    """The single line of a kernel file; '' if there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""  # this kernel or container does not have it, which the check reports


def _capabilities() -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", _line(STATUS), re.MULTILINE)
    return int(found.group(1), 16) if found else 0


def _in_container() -> bool:
    marked = any(path.exists() for path in MARKS) or "container" in os.environ
    return marked or bool(ENGINES.search(_line(FIRST_PROCESS)))


CHECKS: tuple[Check, ...] = (
    kernel, isolated_cores, governor, receive_buffer, shared_memory, container,
)  # fmt: skip
