"""Builds auras_ros for pip and for colcon (ament_python).

`kernels/` and `sim/` are packages at the top level and reach `auras_ros.kernels` and
`auras_ros.sim` through two symbolic links inside `auras_ros/`: a `package_dir` mapping would
do the same for pip, but breaks `colcon build --symlink-install`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup

NAME = "auras_ros"
SHARE = f"share/{NAME}"
# Not the checkout's absolute path: data_files and colcon both want paths relative to setup.py.
HERE = Path(__file__).resolve().parent


def version() -> str:
    """The one version number, read without importing the package."""
    text = (HERE / NAME / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{NAME}/__init__.py does not set __version__")
    return found.group(1)


def share_files(folder: str, pattern: str) -> list[tuple[str, list[str]]]:
    """data_files entries for the files in `folder` that match `pattern`, one entry a folder."""
    by_folder: dict[str, list[str]] = {}
    for path in sorted((HERE / folder).glob(pattern)):
        if path.is_file():
            relative = path.relative_to(HERE)
            by_folder.setdefault(f"{SHARE}/{relative.parent.as_posix()}", []).append(relative.as_posix())
    return list(by_folder.items())


def pip_executables() -> list[tuple[str, list[str]]]:
    """data_files entries that let `ros2 run` find what pip installs, in builds that pip asks for.

    colcon puts the programs themselves there (setup.cfg), and these would take their place.
    """
    if {"bdist_wheel", "editable_wheel"}.isdisjoint(sys.argv):
        return []
    return [(f"lib/{NAME}", [f"resource/pip/{each}" for each in ("agent", "actuator", "button", "vlm", "sim_bridge")])]


def shared_files() -> list[tuple[str, list[str]]]:
    """data_files entries for what belongs into share/: marker, manifest, launch files, configurations, checkpoints.

    An editable install has the first three alone, which `ros2 launch` and `ros2 run` look for. Everything else is read
    from the checkout, so that an edit there counts: see auras_ros/resources.py.
    """
    found_by_ros = [
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (SHARE, ["package.xml"]),
        *share_files("launch", "*.launch.py"),
    ]
    if "editable_wheel" in sys.argv:
        return found_by_ros
    return [
        *found_by_ros,
        *share_files("config", "**/*.yaml"),
        *share_files("config", "fastdds/*.xml"),
        *share_files("checkpoints", "**/*"),
    ]


class DistributionWithData(Distribution):
    """Lets `pip install -e` install data_files.

    setuptools' editable_wheel installs a category if the distribution has a method `has_<category>` that says so, and
    data_files have one of another name. tests/package/test_editable.py shows whether this still holds.
    """

    def has_data(self) -> bool:
        return bool(self.data_files)


SIM = ["gym-pusht>=0.1.6", "gymnasium>=1.0"]
PLOT = ["matplotlib>=3.7"]
TRANSFORMERS = ["transformers>=5.23; python_version >= '3.11'"]
TUNE = ["optuna>=4.0"]
OFFLOAD = ["accelerate>=1.0"]  # weights beyond the device's memory; brings huggingface-hub
LANGUAGE = ["tokenizers>=0.20"]  # other prompts than a checkpoint's own; 8 MB, brings huggingface-hub
VLM = [*LANGUAGE, "pillow>=10", "jinja2>=3.1"]  # images and conversations as vision-language models were trained with
GRAMMAR = ["llguidance>=1.3"]  # answers by a JSON schema or a regular expression; 4 MB, brings nothing
TRITON = ["triton>=3.5; sys_platform == 'linux'"]  # adapters on a GPU; 286 MB; torch for CUDA brings its own
NUMBA = ["numba>=0.62"]  # adapters on a CPU by our own kernels; 64 MB, brings llvmlite alone
SERVE = [*VLM, "fastapi>=0.115", "uvicorn>=0.30", "uvloop>=0.21", "httptools>=0.6"]  # OpenAI's interface over HTTP
# rclpy without a ROS installation: somebody's builds (github.com/ycheng517/ros-python-wheels), not ROS's own. x86-64
# alone; ROS 2 on aarch64 comes from ROS. Never beside a sourced ROS: their bootstrap mixes the libraries of both at
# random. Exact versions, because nobody maintains them; tests run under these. No other extra contains this one.
ROS_WHEELS = {
    "ros-jazzy-rclpy[fastrtps]": "7.1.6",
    "ros-jazzy-builtin-interfaces": "2.0.3",
    "ros-jazzy-diagnostic-msgs": "5.3.6",
    "ros-jazzy-geometry-msgs": "5.3.6",
    "ros-jazzy-lifecycle-msgs": "2.0.3",
    "ros-jazzy-rcl-interfaces": "2.0.3",
    "ros-jazzy-rosgraph-msgs": "2.0.3",
    "ros-jazzy-sensor-msgs": "5.3.6",
    "ros-jazzy-std-msgs": "5.3.6",
    "ros-jazzy-std-srvs": "5.3.6",
    "ros-jazzy-trajectory-msgs": "5.3.6",
}
ROS = [
    f"{wheel}=={number}; sys_platform == 'linux' and platform_machine == 'x86_64'"
    for wheel, number in ROS_WHEELS.items()
]
TEST = [
    "pytest>=8.4",  # --disable-plugin-autoload
    "pytest-xdist>=3.5",  # most node tests wait for processes: several at a time take less than half as long
    "hypothesis>=6.100",
    "import-linter>=2.0",
    "colcon-core>=0.18",
    "colcon-ros>=0.5",
    "setuptools>=77.0.3,<80",
    "wheel",
    "diffusers>=0.30",  # the samplers are compared with its schedulers; 8 MB in all, brings no torch
    *TUNE,
    *OFFLOAD,
    *GRAMMAR,
    *NUMBA,
    *SERVE,
    "openai>=1.60",  # the server is tested with its official client
    *VLM,  # OpenVLA's processor resizes with Pillow too; ours is compared with it
    "peft>=0.19; python_version >= '3.11'",  # adapters' folders as it writes them; 1 MB, brings nothing more
    *TRANSFORMERS,  # Llama, the vision transformers and LLaVA are compared with it; brings no torch
]
DEV = ["ruff>=0.6", "mypy>=1.11", "types-PyYAML"]

setup(
    name=NAME,
    version=version(),
    description="Robot policies as a frame-clocked asynchronous pipeline between ROS 2 topics",
    license="Apache-2.0",  # not license_expression: colcon on Ubuntu runs this with an older setuptools
    license_files=["LICENSE"],
    author="auras_ros maintainers",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={NAME: ["py.typed"]},
    data_files=[*shared_files(), *pip_executables()],
    distclass=DistributionWithData,
    zip_safe=False,
    python_requires=">=3.10,<3.14",
    install_requires=[
        "torch",  # never pinned: the build (CPU, CUDA, Jetson) is the user's choice
        "numpy",
        "opencv-python",  # never beside opencv-python-headless: both own cv2
        "x-transformers",
        "cuda-python; sys_platform == 'linux'",
        # The wire where rclpy is not installed. Pinned, because the raw-CDR path uses private
        # structures of libddsc. There is no wheel for aarch64 nor for Python 3.10: rclpy serves there.
        "cyclonedds==11.0.1; platform_machine != 'aarch64' and python_version >= '3.11'",
        "rosbags>=0.11",
        "safetensors",
        "pyyaml",
    ],
    extras_require={
        "sim": SIM,
        "plot": PLOT,
        "tune": TUNE,
        "offload": OFFLOAD,
        "language": LANGUAGE,
        "vlm": VLM,
        "grammar": GRAMMAR,
        "triton": TRITON,
        "numba": NUMBA,
        "serve": SERVE,
        "transformers": TRANSFORMERS,
        "ros": ROS,
        "demo": SIM + PLOT + VLM,
        "test": TEST + SIM,  # `colcon test` runs nothing unless an extra of this name asks for pytest
        "dev": DEV,
    },
    entry_points={
        "console_scripts": [
            "auras = auras_ros.cli.main:main",
            "agent = auras_ros.nodes.agent.node:program",
            "actuator = auras_ros.nodes.actuator.node:main",
            "button = auras_ros.nodes.button.node:main",
            "vlm = auras_ros.nodes.vlm.node:program",
            "sim_bridge = auras_ros.sim.bridge.node:main",
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
)
