"""`auras doctor`: what this machine has, what that means, and what to do about it.

The checks are small functions in a list; each checks one thing and returns a finding. Those of the software are
here, those of ROS 2 in `ros_in_use`, those of the machine in `machine`, those of its kernel and container in `host`.
They change nothing and install nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from importlib.util import find_spec

from auras_ros import __version__, resources
from auras_ros.cli.command import command_parser, refused_settings
from auras_ros.cli.doctor import fastdds, host, machine
from auras_ros.cli.doctor.finding import Check, Finding, Verdict, note, ok, problem
from auras_ros.cli.doctor.ros_in_use import middleware, ros
from auras_ros.cli.doctor.sim import SimChecks, mend
from auras_ros.nodes.common import discovery as reach
from auras_ros.sim.worlds import find

COLUMN = 18  # column of the findings
# Debian's package for each library that cv2 needs and its wheel does not contain.
PACKAGE_OF = {"libGL.so.1": "libgl1", "libglib-2.0.so.0": "libglib2.0-0", "libgthread-2.0.so.0": "libglib2.0-0"}
# Modules of each extra that vision-language models use.
VLM_EXTRAS = {
    "vlm": ("tokenizers", "PIL", "jinja2"),
    "grammar": ("llguidance",),
    "serve": ("fastapi", "uvicorn", "uvloop", "httptools"),
}
INCLUDED_VLM = "pusht-vlm"
EXAMPLE = """
example
  auras doctor               a table; exit status 1 if the runtime cannot start
  auras doctor --json        the same as JSON
  auras doctor --sim lift    whether this world can run here; its environment, what it draws with, a picture
  auras doctor --sim lift --fix        make its environment, in ~/.cache/auras_ros/environments or the folder that
                                       AURAS_ROS_ENVIRONMENTS names, and as root install what it draws with
"""


def python() -> Finding:
    version = sys.version.split()[0]
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        return problem("Python", version, "use Python 3.10 to 3.13: PYTHON=python3.11 make env")
    return ok("Python", f"{version} at {sys.executable}")


def discovery() -> Finding:
    """Whether `ros2` in this shell uses the same discovery range as `auras run`."""
    ours, theirs = reach.effective_range() if reach.is_set() else reach.DEFAULT, reach.effective_range()
    if ours == theirs:
        return ok("discovery", f"{ours} for auras and for ros2, set by the environment")
    text = f"{ours} for auras run, sim and demo unless set in their config; {theirs} for ros2 in this shell"
    if not os.environ.get("AMENT_PREFIX_PATH", ""):
        return ok("discovery", text)
    remedy = (
        f"`ros2 topic list` may not show them, and on another machine does not: export {reach.VARIABLE}="
        "LOCALHOST for both (then: ros2 daemon stop), or SUBNET to open them to the network"
    )
    return note("discovery", text, remedy)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def torch() -> Finding:
    try:
        module = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return problem("torch", f"does not import: {error}", "make env, or install torch for this machine")
    threads, usable = module.get_num_threads(), len(os.sched_getaffinity(0))
    text = f"{module.__version__}, {threads} intra-op threads"
    if threads > usable:
        return note("torch", f"{text} on {usable} cores", f"set OMP_NUM_THREADS={usable} or less")
    return ok("torch", text)


def opencv() -> Finding:
    """Whether cv2 imports, so that its shared libraries are here, and whether only one package owns it."""
    try:
        module = importlib.import_module("cv2")
    except (ImportError, OSError) as error:
        missing = re.search(r"(lib\S+\.so[.\d]*)", str(error))
        package = PACKAGE_OF.get(missing.group(1), "") if missing else ""
        remedy = f"sudo apt-get install -y {package}" if package else "pip install opencv-python"
        return problem("OpenCV", f"cv2 does not import: {error}", remedy)
    names = ("opencv-python", "opencv-python-headless", "opencv-contrib-python")
    owners = [name for name in names if _version(name) != "of unknown version"]
    if len(owners) > 1:
        remedy = f"keep one: pip uninstall {' '.join(owners)}, then pip install opencv-python"
        return note("OpenCV", f"{module.__version__}, owned by {' and '.join(owners)}", remedy)
    return ok("OpenCV", f"{module.__version__}, its shared libraries are installed")


def simulator() -> Finding:
    try:
        importlib.import_module("auras_ros.sim.pusht.env")
    except (ImportError, OSError) as error:
        return note("simulator", f"Push-T is not installed: {error}", "for the demo: pip install 'auras_ros[sim]'")
    return ok("simulator", f"Push-T (gym-pusht {_version('gym-pusht')})")


def files() -> Finding:
    """Whether the shipped configurations are found, wherever the package is installed."""
    try:
        folder = resources.share_dir()
        resources.find("config", "pusht.yaml")
    except FileNotFoundError as error:
        return problem("files", str(error), "install the package again: pip install . or colcon build")
    return ok("files", str(folder))


def checkpoints() -> Finding:
    """Whether every shipped policy loads: format, hash, tensors, and the golden sample under each plan."""
    from auras_ros.checkpoints.errors import CheckpointError
    from auras_ros.policies.checkpoint import load

    try:
        folder = resources.share_dir() / "checkpoints"
    except FileNotFoundError as error:
        return problem("checkpoints", str(error), "install the package again")
    found = sorted(path.parent for path in folder.glob("*/policy.json"))
    if not found:
        return problem("checkpoints", f"none in {folder}", "train one: auras train pusht")
    loaded = []
    for each in found:
        try:
            checkpoint = load(each)
        except (CheckpointError, OSError) as error:
            return problem("checkpoints", f"{each.name} does not load: {error}", "restore the folder or train again")
        loaded.append(f"{checkpoint.name} ({', '.join(checkpoint.plans)}; sha256 {checkpoint.digest[:12]})")
    return ok("checkpoints", "; ".join(loaded))


def vision_language() -> Finding:
    """Whether vision-language models can be opened, asked for answers of a form, and served; and whether the included
    one opens."""
    absent = [extra for extra, modules in VLM_EXTRAS.items() if not all(map(find_spec, modules))]
    if absent:
        remedy = f"if vision-language models are used: pip install 'auras_ros[{','.join(absent)}]'"
        return note("VLM", f"without what the extras {', '.join(absent)} install", remedy)
    from auras_ros.checkpoints.errors import CheckpointError
    from auras_ros.checkpoints.vlm.open import open_vlm

    try:
        checkpoint = open_vlm(resources.checkpoint(INCLUDED_VLM), weights=False)
    except (CheckpointError, OSError, ValueError) as error:
        return problem("VLM", f"{INCLUDED_VLM} does not open: {error}", "install the package again")
    return ok("VLM", f"{checkpoint.name} (sha256 {checkpoint.digest[:12]}); auras serve, answers by a schema")


CHECKS: tuple[Check, ...] = (
    python, ros, *machine.CHECKS, discovery, *host.CHECKS, middleware, *fastdds.CHECKS, torch, opencv, simulator,
    files, checkpoints, vision_language,
)  # fmt: skip


def examine(checks: Sequence[Check], say: Callable[[Finding], None] = lambda finding: None) -> list[Finding]:
    """All findings, in order; `say` is called with each as it is made. An exception in a check is a finding too; the
    others still run."""
    findings = []
    for check in checks:
        try:
            findings.append(check())
        except Exception as error:  # noqa: BLE001  any exception is reported by its name
            text = f"the check itself failed: {type(error).__name__}: {error}"
            findings.append(problem(check.__name__, text, "please report this"))
        say(findings[-1])
    return findings


def table(findings: Sequence[Finding], width: int, column: int = 0) -> str:
    """A line for each finding, wrapped to `width`, and the remedy below it. Of a text of several lines those after the
    first are as they are, so that commands can be copied. column: least column of the text."""
    column = max(column, *(len(each.name) + 2 for each in findings))
    lines = []
    for each in findings:
        head = f"{each.status.value:8}{each.name:{column}}"
        # Words are not broken, so that commands, paths and file lines can be copied.
        for start, text in ((head, each.text), (f"{' ' * len(head)}-> ", each.remedy)):
            first, _, others = text.partition("\n")
            more = " " * len(start)
            lines += textwrap.TextWrapper(width, start, more, break_long_words=False, break_on_hyphens=False).wrap(
                first
            )
            lines += [f"{more}{line}" for line in others.splitlines()]
    return "\n".join(lines)


def run(argv: list[str]) -> int:
    """Returns 0, or 1 if a problem prevents the runtime from starting, or the world of --sim. Raises SetupError."""
    parser = command_parser("doctor", "Check this machine, and print what to do about problems.", EXAMPLE)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--sim", metavar="SIM", help="check a world in place of the runtime: auras list simulators")
    parser.add_argument("--fix", action="store_true", help="install what the world of --sim needs, then check it")
    options = parser.parse_args(argv)
    checks, what = CHECKS, "the runtime can{} start"
    if options.fix and not options.sim:
        parser.error("--fix: of which world? --sim NAME")
    if options.sim:
        with refused_settings(parser):
            world = SimChecks(options.sim, find(options.sim))
        if options.fix:
            mend(world.sim, lambda line: print(line, file=sys.stderr, flush=True))
        checks, what = world.checks, f"{options.sim} can{{}} run here"

    def say(finding: Finding) -> None:
        if not options.json:  # printed at once: some checks take seconds, and one may hang
            print(table([finding], 110, COLUMN), flush=True)

    findings = examine(checks, say)
    problems = sum(each.status is Verdict.PROBLEM for each in findings)
    notes = sum(each.status is Verdict.NOTE for each in findings)
    if options.json:
        rows = [asdict(each) for each in findings]
        summary = {"problems": problems, "notes": notes}
        print(json.dumps({"name": "doctor", "version": __version__, "rows": rows, "summary": summary}, indent=1))
    else:
        verdict = what.format("not" if problems else "")
        print(f"\nauras_ros {__version__}: {problems} problem(s), {notes} note(s); {verdict}")
    return 1 if problems else 0
