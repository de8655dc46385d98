"""`auras doctor --sim NAME`: whether a world can run here; with --fix, its environment is made and its libraries are
installed. Without it nothing is changed.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.cli.doctor.finding import Check, Finding, note, ok, problem
from auras_ros.cli.main import remedy_for
from auras_ros.environments import Environment, Renderer
from auras_ros.own_environment import DONE, SetupError, make, python_of, run
from auras_ros.sim.world import Sim

INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")
FAILURES = (ModuleNotFoundError, OSError, ValueError, RuntimeError)  # of a world
VERSIONS = """
import importlib.metadata, json
found = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class SimChecks:
    """The checks of one world. name: as it was given."""

    name: str
    sim: Sim

    @property
    def checks(self) -> tuple[Check, ...]:
        if self.sim.environment is None:
            return (self.world,)
        return (self.environment, self.rendering, self.world) if self.sim.environment.made else (self.environment,)

    @property
    def fix(self) -> str:
        return f"auras doctor --sim {self.sim.world.name} --fix"

    def environment(self) -> Finding:
        """Whether the world's environment is made, and has the packages that it should have."""
        environment = self._environment
        if not environment.made:
            return problem("environment", environment.missing, environment.remedy(self.sim.world.name))
        wrong = wrong_versions(environment)
        if wrong:
            return problem("environment", f"{environment.folder}: {'; '.join(wrong)}", self.fix)
        found = ", ".join(environment.requirements[:3]) or environment.module or "no package"
        return ok("environment", f"{environment.folder}: {found}")

    def rendering(self) -> Finding:
        """Which library the simulator can draw with, of those that it can use."""
        renderers = self._environment.renderers
        if not renderers:
            return ok("rendering", "no library is looked for")
        wanted, found = renderers[0], next(filter(loads, renderers), None)
        if found is wanted:
            return ok("rendering", f"{wanted.name}: {wanted.library}")
        remedy = f"{self.fix}, or: {install_command(wanted)}"
        if found is not None:
            return note("rendering", f"{found.name} in place of {wanted.name}: {found.note}", remedy)
        missing = " nor ".join(each.library for each in renderers)
        return problem("rendering", f"neither {missing}: no picture can be drawn", remedy)

    def world(self) -> Finding:
        """Whether the world is made, begins an episode, and shows each camera."""
        try:
            self.sim.check()
            world = self.sim.make()
        except FAILURES as error:
            return problem("world", f"{self.name} cannot be made: {error}", self._remedy(error))
        try:
            world.reset(0)
            for each in world.cameras:
                world.image(each.name, each.height, each.width)
        except FAILURES as error:
            return problem("world", f"{self.name} begins no episode: {error}", self._remedy(error))
        finally:
            world.close()
        seen = ", ".join(f"{each.name} {each.width}x{each.height}" for each in world.cameras)
        where = f" in a process of '{self.sim.environment.name}'" if self.sim.environment else ""
        return ok("world", f"{self.name} runs{where}; it shows {seen}")

    @property
    def _environment(self) -> Environment:
        if self.sim.environment is None:
            raise ValueError(f"{self.name} needs no environment of its own")
        return self.sim.environment

    def _remedy(self, error: Exception) -> str:
        environment, given = self.sim.environment, self.name.partition(":")[2]
        if isinstance(error, ModuleNotFoundError):
            missing = (error.name or "").partition(".")[0]
            return environment.remedy(self.sim.world.name) if environment else remedy_for(missing)
        files = [each for each in vars(self.sim.options).values() if str(each).endswith(".yaml")]
        if isinstance(error, ValueError) and (files or "=" in given):  # the world refuses what the user says
            return f"edit {files[0]}" if files else f"other options than {given}: docs/parameters.md"
        if environment and environment.by_hand:  # a command may have been left out
            return environment.remedy(self.sim.world.name)
        if environment and environment.renderers:
            return install_command(environment.renderers[0])
        return f"tell whoever wrote {self.sim.world.__module__}"


def mend(sim: Sim, say: Callable[[str], None]) -> None:
    """Make the world's environment if it is not there or has other versions, and install what its simulator draws with.
    Raises SetupError."""
    environment = sim.environment
    if environment is None:
        say(f"{sim.world.name} needs no environment of its own: nothing to do")
        return
    if environment.by_hand and not environment.made:
        raise SetupError(f"{environment.missing}; make it: {environment.remedy(sim.world.name)}")
    wrong = environment.made and wrong_versions(environment)
    if wrong:
        (environment.folder / DONE).unlink()
    if wrong or not environment.made:
        make(environment.steps, say)
    if environment.renderers and not loads(wanted := environment.renderers[0]):
        if os.geteuid() or shutil.which("apt-get") is None:
            say(f"as root, for {wanted.name}: {install_command(wanted)}")
            return
        for step in (["apt-get", "update", "-qq"], [*INSTALL, *wanted.packages]):
            say(" ".join(step))
            run(step)


def wrong_versions(environment: Environment) -> list[str]:
    """Which packages are missing there or have another version."""
    try:
        command = [str(python_of(environment.folder)), "-I", "-c", VERSIONS]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return [f"its Python does not run: {error}"]
    found = {plain(name): version for name, version in json.loads(ran.stdout).items()}
    wanted = dict(each.split("==") for each in (*environment.requirements, *environment.resolved))
    return [
        f"{name} {found.get(plain(name), 'is missing')}, not {version}"
        for name, version in wanted.items()
        if found.get(plain(name), "").partition("+")[0] != version  # torch's build follows its version
    ]


def plain(name: str) -> str:
    """A distribution's name as pip compares it."""
    return name.lower().replace("_", "-").replace(".", "-")


def loads(renderer: Renderer) -> bool:
    try:
        ctypes.CDLL(renderer.library)
    except OSError:
        return False
    return True


def install_command(renderer: Renderer) -> str:
    return " ".join(("sudo", *INSTALL, *renderer.packages))
