"""`auras doctor` on the machine: cores, scheduling class, locked memory, GPU, network.

No check changes anything, and none of them must be met to run: a small machine gets notes.
"""

from __future__ import annotations

import getpass
import os
import resource
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from auras_ros.cli.doctor import host
from auras_ros.cli.doctor.finding import Check, Finding, note, ok
from auras_ros.nodes.common import discovery

FIFO_PRIORITY = 50  # the actuator's default
RTPRIO_WANTED = 98
MEMLOCK_WANTED_MIB = 4096  # the actuator needs its mapped memory plus 2 GiB (nodes/actuator/realtime.py)
LIMITS = "/etc/security/limits.conf"
INTERFACES = Path("/sys/class/net")
ROUTES = Path("/proc/net/route")
FLAG_UP, FLAG_LOOPBACK, FLAG_MULTICAST = 0x1, 0x8, 0x1000
DISCOVERY_GROUP = "239.255.0.1"  # multicast group of DDS discovery


def user() -> str:
    """The user for limits.conf; a user id without a name is given as a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"#{os.getuid()}"


def cores() -> Finding:
    usable, there, load = len(os.sched_getaffinity(0)), os.cpu_count() or 1, os.getloadavg()[0]
    text = f"{usable} of {there} cores for this process, load {load:.1f}"
    if usable < 2:
        return note("cores", text, "give it two cores: inference and the actuator's ticks would share one")
    if load > usable:
        return note("cores", text, "the machine is busy: rates and jitter will be worse than on a quiet one")
    return ok("cores", text)


def try_fifo(priority: int) -> str:
    """'' if this thread may run under SCHED_FIFO, else the reason. Its scheduling class is restored."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return error.strerror or str(error)
    os.sched_setscheduler(0, policy, parameters)
    return ""


def scheduling() -> Finding:
    """Whether the actuator's thread may use SCHED_FIFO: its jitter under load depends on it."""
    refusal = try_fifo(FIFO_PRIORITY)
    limit = resource.getrlimit(resource.RLIMIT_RTPRIO)[0]
    if not refusal:
        return ok("scheduling", f"SCHED_FIFO is permitted (tried priority {FIFO_PRIORITY}, rtprio limit {limit})")
    return note(
        "scheduling",
        f"SCHED_FIFO {FIFO_PRIORITY} is refused ({refusal}; rtprio limit {limit}): the actuator runs without it",
        f"add the line '{user()} - rtprio {RTPRIO_WANTED}' to {LIMITS} and log in again; "
        f"a container needs --cap-add=SYS_NICE --ulimit rtprio={RTPRIO_WANTED}",
    )


def memory_lock() -> Finding:
    """Whether the actuator may lock its memory: a tick that waits for a page comes late."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or host.may_lock_memory():
        return ok("memory lock", "unlimited")
    text = f"{limit / 2**20:.0f} MiB may be locked in memory"
    if limit < MEMLOCK_WANTED_MIB * 2**20:
        remedy = (
            f"add the line '{user()} - memlock unlimited' to {LIMITS} and log in again; "
            "a container needs --cap-add=IPC_LOCK --ulimit memlock=-1"
        )
        return note("memory lock", f"{text}: the actuator runs without locked memory", remedy)
    return ok("memory lock", text)


def query_gpus() -> tuple[list[str], str]:
    """(one line for each GPU: name, driver, memory; why nvidia-smi failed). Both are empty without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    command = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    if done.returncode:
        return [], (done.stdout or done.stderr).strip().splitlines()[0] if done.stdout or done.stderr else "failed"
    return [line.strip() for line in done.stdout.splitlines() if line.strip()], ""


def cuda() -> tuple[bool, str]:
    """(whether torch can use a GPU, the CUDA version that torch was built for or '')."""
    try:
        import torch
    except (ImportError, OSError):
        return False, ""
    return torch.cuda.is_available(), str(torch.version.cuda or "")


def gpu() -> Finding:
    """The GPU. Having none is fine; one that torch cannot use is a note."""
    found, reason = query_gpus()
    usable, built_for = cuda()
    if usable:
        return ok("GPU", f"{'; '.join(found) or 'seen by torch'} (torch for CUDA {built_for})")
    if reason:
        return note("GPU", f"nvidia-smi fails: {reason}", "repair the driver; until then everything runs on the CPU")
    if not found:
        return ok("GPU", "none; everything runs on the CPU")
    if not built_for:
        remedy = "install a torch with CUDA: make env TORCH=torch"
        return note("GPU", f"{'; '.join(found)}; this torch is built without CUDA", remedy)
    remedy = f"update the driver for CUDA {built_for}, or check CUDA_VISIBLE_DEVICES"
    return note("GPU", f"{'; '.join(found)}; torch for CUDA {built_for} cannot use it", remedy)


def interfaces() -> dict[str, int]:
    """Network interfaces that are up, with their flags."""
    found = {}
    for folder in sorted(INTERFACES.iterdir()) if INTERFACES.is_dir() else []:
        try:
            flags = int((folder / "flags").read_text(), 16)
        except OSError:  # a file of the bonding driver, or an interface that has just gone
            continue
        if flags & FLAG_UP:
            found[folder.name] = flags
    return found


def default_interface() -> str:
    """The interface of the default route, which DDS prefers; '' without one."""
    lines = ROUTES.read_text().splitlines()[1:] if ROUTES.is_file() else []
    return next((line.split()[0] for line in lines if line.split()[1] == "00000000"), "")


def multicast_error(interface: str) -> str:
    """'' if a multicast datagram sent on this interface comes back to its sender, else what failed."""
    payload = os.urandom(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(1.0)
        try:
            receiver.bind(("", 0))
            address, index = socket.inet_aton(DISCOVERY_GROUP), socket.if_nametoindex(interface)
            group = struct.pack("4s4si", address, bytes(4), index)  # ip_mreqn
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, group)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            receiver.sendto(payload, (DISCOVERY_GROUP, receiver.getsockname()[1]))
            return "" if receiver.recv(64) == payload else "another datagram came back"
        except TimeoutError:
            return "no datagram came back within a second"
        except OSError as error:
            return error.strerror or str(error)


def network() -> Finding:
    """The interface that is used for discovery, and whether multicast works on it."""
    if discovery.effective_range() in ("LOCALHOST", "OFF"):
        return ok("network", "only this host, set by the environment; multicast is not needed")
    up = interfaces()
    used = default_interface() or next((name for name, flags in up.items() if not flags & FLAG_LOOPBACK), "")
    one_host = "with one machine nothing is needed; set ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST then"
    if not used:
        return note("network", f"up is only {', '.join(up) or 'none'}: no other machine can be reached", one_host)
    text = f"{used} (up: {', '.join(up)})"
    failure = "not supported by it" if not up.get(used, 0) & FLAG_MULTICAST else multicast_error(used)
    if failure:
        remedy = f"list other machines in ROS_STATIC_PEERS (a;b;c); {one_host}"
        return note("network", f"{text}, multicast fails: {failure}", remedy)
    return ok("network", f"{text}, multicast works")


CHECKS: tuple[Check, ...] = (cores, scheduling, memory_lock, gpu, network)
