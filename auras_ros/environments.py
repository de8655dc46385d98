"""The Python environments beside ours, for what runs in them as a process: where they are, what is in them, which one
is made how.

A world whose simulator needs other versions than ours (robosuite: numpy 1) names one in its `Sim`. Only `auras doctor
--sim NAME --fix` makes one, or a person, where a list of packages does not do. Nothing here knows a world or a policy.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from auras_ros.own_environment import OwnEnvironment, python_of

PLACE = "AURAS_ROS_ENVIRONMENTS"  # variable: the folder in which they are, in place of the default
BEGUN = "auras-world.begun"


class MissingEnvironmentError(ValueError):
    """An environment is not there; the message says how it is made."""


@dataclass(frozen=True)
class Renderer:
    """A library that a simulator may draw with. packages: what has it on Debian and Ubuntu. note: what there is to know
    about it; empty for the one that is wanted."""

    name: str
    library: str
    packages: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class Environment:
    """requirements: every package with its version, as `pip freeze` lists them; they bring no others. renderers:
    those that the simulator can use, the wanted one first. pythons: the first and last version of Python with these
    packages. place: of an environment that is elsewhere; without requirements it is used as it is.

    resolved: packages that are installed before those, with what they require, which depends on the machine: torch.

    by_hand: the commands with which a person makes it, with {folder} for its place; auras makes none then. module: what
    is found in it once that is done.
    """

    name: str
    requirements: tuple[str, ...] = ()
    renderers: tuple[Renderer, ...] = ()
    pythons: tuple[tuple[int, int], tuple[int, int]] = ((3, 10), (3, 13))
    place: Path | None = None
    by_hand: str = ""
    module: str = ""
    resolved: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.place or place() / self.name

    @property
    def steps(self) -> OwnEnvironment:
        """How it is made."""
        pip = [str(python_of(self.folder)), "-m", "pip", "install"]
        steps = [[sys.executable, "-m", "venv", str(self.folder)]]
        steps += [[*pip, *self.resolved]] if self.resolved else []
        steps += [[*pip, "--no-deps", *self.requirements]] if self.requirements else []
        return OwnEnvironment(f"the environment '{self.name}'", self.folder, steps, BEGUN, self.pythons)

    @property
    def made(self) -> bool:
        if self.requirements:
            return self.steps.made
        python = python_of(self.folder)
        return python.exists() and (not self.module or _finds(python, self.module))

    @property
    def missing(self) -> str:
        """What is said of it where it is not made."""
        without = f", or is without {self.module}" if self.module else ""
        return f"'{self.name}' is not in {self.folder}{without}"

    def remedy(self, sim: str) -> str:
        """How it is made: a command, or lines of them. sim: of a world that runs in it."""
        folder = shlex.quote(str(self.folder))
        return self.by_hand.replace("{folder}", folder) or f"auras doctor --sim {sim} --fix"

    def python(self, sim: str) -> Path:
        """Its Python. sim: for which world. Raises MissingEnvironmentError if it is not made, or for other versions."""
        if not self.made:
            raise MissingEnvironmentError(f"{sim}: its environment {self.missing}; make it: {self.remedy(sim)}")
        return python_of(self.folder)


def _finds(python: Path, module: str) -> bool:
    """Whether this Python finds the module, which is not imported."""
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([str(python), "-I", "-c", look, module], check=False).returncode == 0


def place() -> Path:
    """The folder of all environments."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(PLACE) or cache / "auras_ros" / "environments").expanduser()


OURS = Environment("ours", place=Path(sys.prefix))
"""Our own environment: the world runs as a process all the same, so that a crash ends an episode alone."""

# Those that MuJoCo draws with on a machine without a screen.
EGL = Renderer("EGL", "libEGL.so.1", ("libegl1", "libegl-mesa0", "libgl1-mesa-dri", "libgles2"))
OSMESA = Renderer("OSMesa", "libOSMesa.so.8", ("libosmesa6",), "its pictures take ten times as long")

# What robosuite 1.5.2 resolves to with this MuJoCo and numpy, without what its keyboards (pynput) and its controller of
# whole bodies (mink) need: nothing here loads them, and one of their packages needs a compiler.
ROBOSUITE = Environment(
    "robosuite",
    (
        "robosuite==1.5.2",
        "mujoco==3.3.7",  # 3.10 and later do not load its models
        "numpy==1.26.4",
        "absl-py==2.5.1",
        "etils==1.15.0",
        "fsspec==2026.9.0",
        "glfw==2.11.0",
        "iniconfig==2.3.1",
        "llvmlite==0.50.0",
        "numba==0.68.1",
        "opencv-python==4.11.0.86",
        "packaging==26.4",
        "pillow==13.0.0",
        "pluggy==1.7.0",
        "Pygments==2.21.0",
        "PyOpenGL==3.1.10",
        "pytest==9.2.0",  # its reading of models imports it
        "scipy==1.17.1",
        "termcolor==3.3.0",
        "tqdm==4.70.1",
        "typing_extensions==4.16.0",
        "zipp==4.1.2",
    ),
    (EGL, OSMESA),
    ((3, 11), (3, 12)),
)

# robosuite's, with robomimic under the name of its last release on PyPI, and what it imports. Of what it requires
# (transformers, tensorboard, wandb) nothing here is used.
ROBOMIMIC = Environment(
    "robomimic",
    (
        *ROBOSUITE.requirements,
        "praxis-robomimic==0.5.0",
        "certifi==2026.10.19.post1",
        "charset-normalizer==3.5.3",
        "contourpy==1.3.3",
        "cycler==0.12.1",
        "diffusers==0.35.2",
        "filelock==4.3.1",
        "fonttools==4.68.0",
        "h5py==3.16.0",
        "huggingface-hub==0.35.3",
        "idna==3.20",
        "ImageIO==2.38.1",
        "importlib_metadata==10.2.0",
        "kiwisolver==1.5.1",
        "matplotlib==3.11.2",
        "pyparsing==3.3.3",
        "python-dateutil==4.0.0",
        "PyYAML==6.0.4",
        "regex==2026.11.19",
        "requests==2.34.2",
        "safetensors==0.8.0",
        "six==1.17.0",
        "urllib3==2.8.0",
    ),
    ROBOSUITE.renderers,
    ROBOSUITE.pythons,
    resolved=("torch==2.13.0", "torchvision==0.28.0"),
)

# As its own page installs it, with the versions with which it runs on today's machines.
SIMPLER = Environment(
    "simpler",
    by_hand="""by hand, as SimplerEnv is not on PyPI (Python 3.11 or 3.10, for sapien; auras_ros is not installed there)
  python3.11 -m venv {folder}
  {folder}/bin/pip install 'sapien==2.2.2' 'numpy<2' 'gymnasium<1' 'setuptools<81' opencv-python
  git clone --recurse-submodules https://github.com/simpler-env/SimplerEnv {folder}/SimplerEnv
  {folder}/bin/pip install -e {folder}/SimplerEnv/ManiSkill2_real2sim -e {folder}/SimplerEnv
  sudo apt-get install -y --no-install-recommends libvulkan1 mesa-vulkan-drivers  # no GPU: sapien draws with Vulkan""",
    module="simpler_env",
)
