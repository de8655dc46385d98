"""Two arms of seven joints before four cameras: a small policy of that shape with random weights, and the robot's side
of the wire.

Each joint has a band of its own in which the policy's actions lie, so that a value in another joint's place shows.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from auras_ros.checkpoints.manifest import FORMAT, MANIFEST
from auras_ros.checkpoints.tensors import sha256
from auras_ros.observation import Preprocessor
from auras_ros.pipeline.noise import noise_tape
from auras_ros.policies.architectures import RECIPES
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, Checkpoint, build
from auras_ros.policies.golden import GoldenSample, replay
from auras_ros.policies.policy import generate
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import image_message, to_time_msg
from auras_ros.ros.msg import Bool, Header, Image, JointState, String
from tests.nodes.controllers import channel
from tests.nodes.stand_ins import Loop
from tests.nodes.test_controllers_config import ARMS
from tests.nodes.wire import LATCHED

RECIPE = RECIPES["dp-plus"]  # the published policy of this shape; here with networks that a busy core can run
HEIGHT, WIDTH = RECIPE.architecture.image_px
CAMERAS = ("left_wrist", "right_wrist", "front", "above")
ENCODER = {**RECIPE.encoder, "width": 16}
NETWORK = {**RECIPE.network, "layers": 1, "heads": 2, "width": 32}
DT_MS, HORIZON = 100.0, 16
LOWER = np.array([-1.4 + 0.2 * i for i in range(len(ARMS))])
UPPER = LOWER + 0.1
REST = (LOWER + UPPER) / 2
URDF_LIMIT = '<joint name="{}" type="revolute"><limit lower="-2.9" upper="2.9" velocity="4" effort="9"/></joint>'


def manifest(digest: str = "f" * 64) -> dict[str, Any]:
    """`policy.json` of this policy."""
    frame = {"height": HEIGHT, "width": WIDTH, "mean": [0.5] * 3, "std": [0.25] * 3}
    statistics = {"kind": "min_max", "lower": LOWER.tolist(), "upper": UPPER.tolist()}
    spans = {"kind": "min_max", "min": (LOWER - 1.0).tolist(), "max": (UPPER + 1.0).tolist()}
    return {
        "format": FORMAT,
        "name": "two-arms",
        "type": "diffusion",
        "encoder": ENCODER,
        "network": NETWORK,
        "horizon": HORIZON,
        "observation": {
            "cameras": [{"name": name, **frame} for name in CAMERAS],
            "state": {"names": ARMS, "normalization": spans},
            "history": RECIPE.architecture.history,
            "dt_ms": DT_MS,
        },
        "action": {"dt_ms": DT_MS, "channels": [channel(name) for name in ARMS]},
        "statistics": statistics,
        "plans": {"quick": {"sampler": "ddim", "steps": 3}},
        "weights": {"file": WEIGHTS, "sha256": digest},
    }


def write(folder: Path) -> Checkpoint:
    """The checkpoint as a folder, with a golden sample; returns what it holds."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    made = build(manifest(), "", folder / MANIFEST)
    with torch.no_grad():
        for weights in made.networks["network"].parameters():
            weights.mul_(3.0)  # random weights hardly look at their input: let every camera and joint count
    save_file(made.networks.state_dict(), folder / WEIGHTS)
    (folder / MANIFEST).write_text(json.dumps(manifest(sha256(folder / WEIGHTS))), encoding="utf-8")
    history = made.spec.history
    frames = {name: np.stack([image] * history) for name, image in pictures().items()}
    sample = GoldenSample(frames, {name: np.full(history, at) for name, at in zip(ARMS, REST, strict=True)}, {})
    for plan in made.plans:
        sample = sample.with_actions(plan, ARMS, replay(made.policy(plan), made.spec, sample))
    sample.save(folder / GOLDEN)
    return made


def pictures() -> dict[str, NDArray[np.uint8]]:
    """What each camera shows, always: uint8 [height, width, 3], coarse patches that differ from camera to camera."""
    random = np.random.default_rng(5)
    patches = {name: random.integers(0, 256, (6, 6, 3), dtype=np.uint8) for name in CAMERAS}
    return {name: np.kron(patch, np.ones((HEIGHT // 6, WIDTH // 6, 1), np.uint8)) for name, patch in patches.items()}


def actions(made: Checkpoint, images: dict[str, NDArray[np.uint8]], joints: NDArray[np.float64], request: int) -> Any:
    """What the policy makes of an observation that never changes, for one request of seed 0: [horizon, channels]."""
    instant = Preprocessor(made.spec)(images, joints)
    policy = made.policy("quick")
    shown = torch.from_numpy(np.stack([instant.image] * made.spec.history))[None]
    state = torch.from_numpy(np.stack([instant.state] * made.spec.history))[None]
    noise = noise_tape(policy.noise_shape, 0, request)[None]
    return generate(policy, noise, policy.perceive(shown, state))[0].numpy()


class Cell:
    """Cameras and joint states at 20 Hz, an emergency stop that nobody presses, and the robot's description.

    `pictures`, `changes`, `lag_ms` and `stalled` may be changed by camera; `stamps_ns` says what was published.
    """

    def __init__(self, node: Node) -> None:
        sensor = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.pictures, self.stalled = pictures(), set[str]()
        self.changes: dict[str, dict[str, Any]] = {name: {} for name in CAMERAS}
        self.lag_ms = dict.fromkeys(CAMERAS, 0)
        self.stamps_ns: dict[str, list[int]] = {name: [] for name in CAMERAS}
        self._cameras = {name: node.create_publisher(Image, f"camera/{name}/image_raw", sensor) for name in CAMERAS}
        self._joints = node.create_publisher(JointState, "joint_states", sensor)
        self._button = node.create_publisher(Bool, "emergency_stop", LATCHED)
        self._description = node.create_publisher(String, "robot_description", LATCHED)
        limits = "".join(URDF_LIMIT.format(name) for name in ARMS)
        self._description.publish(String(data=f'<robot name="two_arms">{limits}</robot>'))
        self._loop = Loop(0.05, self._step)

    def _step(self) -> None:
        self._button.publish(Bool(data=False))
        now_ns = time.time_ns()
        names, at = [*reversed(ARMS), "gripper"], [*reversed(REST.tolist()), 0.04]
        self._joints.publish(JointState(header=Header(stamp=to_time_msg(now_ns)), name=names, position=at))
        for name, topic in self._cameras.items():
            if name in self.stalled:
                continue
            stamp_ns = now_ns - self.lag_ms[name] * 1_000_000
            message = image_message(self.pictures[name], stamp_ns=stamp_ns, frame_id=name, encoding="rgb8")
            for field, value in self.changes[name].items():
                setattr(message, field, value)
            self.stamps_ns[name].append(stamp_ns)
            topic.publish(message)

    def close(self) -> None:
        self._loop.close()
