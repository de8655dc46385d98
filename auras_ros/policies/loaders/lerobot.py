"""LeRobot folders: config.json, model.safetensors, the processors' JSON and their statistics, common to all its types.

The processors' files define what the reference does before and after its network, so those decide: their steps and the
order of them, their normalisation, their statistics. Steps other than the type's in the reference, or in another order,
are refused by name, and so is a difference between processors and config.json. Folders older than processors keep the
statistics among the weights; those are read too. A folder with a LoRA adapter is read with the weights of its base.
This module knows no network.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.files import read_weights
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.manifest import ROBOT
from auras_ros.checkpoints.peft import CONFIG as ADAPTER_CONFIG
from auras_ros.checkpoints.peft import WEIGHTS as ADAPTER_WEIGHTS
from auras_ros.checkpoints.tokenizer import TOKENIZER
from auras_ros.policies.loaders.lerobot_files import (
    ABSOLUTE_ACTIONS,
    RELATIVE_ACTIONS,
    PolicyFeature,
    ProcessorStep,
    read_features,
    read_steps,
)
from auras_ros.policies.loaders.lerobot_keys import check_keys
from auras_ros.policies.loaders.lerobot_lora import is_adapter_folder, merged_tensors
from auras_ros.policies.loaders.lerobot_processors import (
    check_harmless,
    check_listed,
    check_order,
    mode_of,
)
from auras_ros.policies.loaders.lerobot_version import (
    OLDEST,
    Release,
    WriterVersion,
    read_release,
    settled_version,
    shown_release,
    version_by_files,
)
from auras_ros.policies.loaders.normalization import FeatureNormalization, Statistics, normalization
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated
from auras_ros.values import shown

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"
NORMALIZER, UNNORMALIZER = "normalizer_processor", "unnormalizer_processor"
STATE, ACTION = "observation.state", "action"
USES_RELATIVE_ACTIONS = "use_relative_actions"  # a key of config.json
BURIED = ("normalize_inputs.", "normalize_targets.", "unnormalize_outputs.")  # statistics among the weights

# By config.json's `type`: the module whose `translate(LeRobotFolder, Robot) -> Translated` reads it. An entry here is
# enough. KEYS of the module: the keys of config.json that change actions; LATER: those of them that the reference added
# when folders existed already, and that are off if they are missing; IGNORED: keys of the type's training.
TRANSLATORS = {
    "diffusion": "auras_ros.policies.loaders.lerobot_diffusion",
    "act": "auras_ros.policies.loaders.lerobot_act",
    "pi0": "auras_ros.policies.loaders.lerobot_pi",
    "pi05": "auras_ros.policies.loaders.lerobot_pi",
    "smolvla": "auras_ros.policies.loaders.lerobot_smolvla",
}


Translator = Callable[["LeRobotFolder", Robot], Translated]


@dataclass(frozen=True)
class LeRobotFolder:
    """A folder as read; features are in the order of config.json, which is the network's."""

    path: Path
    config: Mapping[str, Any]
    inputs: tuple[PolicyFeature, ...]
    outputs: tuple[PolicyFeature, ...]
    preprocessor: tuple[ProcessorStep, ...]
    postprocessor: tuple[ProcessorStep, ...]
    processed: bool  # there are processors, and they decide
    tensors: Mapping[str, Tensor] = field(repr=False)
    base: Path | None = None  # the folder whose weights an adapter was merged into

    @classmethod
    def read(cls, path: Path, base: Path | None = None) -> LeRobotFolder:
        """base: the folder that a LoRA adapter belongs to. Raises CheckpointError, naming file and key, or file and
        tensor."""
        config = read_json(path / CONFIG)
        inputs, outputs = (read_features(config, key, path / CONFIG) for key in ("input_features", "output_features"))
        is_adapter = is_adapter_folder(path)
        if base is not None and not is_adapter:
            raise CheckpointError(f"{path}: has no {ADAPTER_CONFIG}: it is no LoRA adapter and takes no base")
        tensors = merged_tensors(path, base) if is_adapter else read_weights(path / WEIGHTS)
        processors = path / PREPROCESSOR, path / POSTPROCESSOR
        told = any(file.is_file() for file in processors)
        before, after = (read_steps(file) if told else () for file in processors)
        return cls(path, config, inputs, outputs, before, after, told, tensors, base)

    # -- config.json --------------------------------------------------------------------------------------

    def file_names(self) -> frozenset[str]:
        """All files of the folder that are read, by name; some may be missing."""
        states = {step.file.name for step in (*self.preprocessor, *self.postprocessor)}
        adapter = {ADAPTER_CONFIG, ADAPTER_WEIGHTS}
        return frozenset({CONFIG, WEIGHTS, PREPROCESSOR, POSTPROCESSOR, TOKENIZER, ROBOT, *states, *adapter})

    @property
    def file(self) -> Path:
        """config.json, for errors."""
        return self.path / CONFIG

    @property
    def weights(self) -> Path:
        """model.safetensors, for errors."""
        return self.path / WEIGHTS

    def refused(self, text: str) -> CheckpointError:
        """A CheckpointError about config.json, to be raised."""
        return CheckpointError(f"{self.file}: {text}")

    def version(self, robot: Robot) -> WriterVersion:
        """Which LeRobot trained it, as far as its files or robot.json tell. Raises CheckpointError if robot.json says a
        release that the files contradict."""
        steps = [step.name for step in (*self.preprocessor, *self.postprocessor)]
        tensors = self.tensors.keys() if self.base is None else ()
        said = read_release(robot.lerobot_version, robot.path)
        return settled_version(version_by_files(self.config, steps, tensors), said, robot.path)

    def is_since(self, release: Release, robot: Robot, difference: str) -> bool:
        """Whether this release or a later one trained it. difference: what depends on that. Raises CheckpointError if
        nothing tells."""
        answer = self.version(robot).is_since(release)
        if answer is None:
            raise self.refused(
                f"nothing in the folder tells whether a LeRobot before {shown_release(release)} trained it or a later "
                f"one, and {difference}; say it in {robot.path}: "
                f'"lerobot_version": "{shown_release(OLDEST)}" or "{shown_release(release)}"'
            )
        return answer

    def get(self, key: str, supported: Collection[Any] | None = None) -> Any:
        """A value (None if it is missing), checked against the supported ones. Raises CheckpointError, naming the key
        and them."""
        value = self.config.get(key)
        if supported is not None and value not in supported:
            listed = ", ".join(map(repr, supported))
            raise self.refused(f"{key}: {value!r} is not supported; expected {listed}")
        return value

    def count(self, key: str, limit: int | None = None) -> int:
        """A whole number above zero, up to a limit. Raises CheckpointError."""
        value = self.config.get(key)
        if type(value) is not int or value < 1:
            raise self.refused(f"{key}: {shown(value)} is not a whole number above zero")
        if limit is not None and value > limit:
            raise self.refused(f"{key}: {shown(value)} is more than {limit}, the most that is supported")
        return value

    def pair(self, key: str) -> tuple[int, int] | None:
        """(height, width), or None if it is null or missing. Raises CheckpointError."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2 or any(type(side) is not int or side < 1 for side in value):
            raise self.refused(f"{key}: {value!r} is not [height, width]")
        return value[0], value[1]

    # -- features -----------------------------------------------------------------------------------------

    @property
    def cameras(self) -> tuple[PolicyFeature, ...]:
        """The images, [3, height, width] each."""
        return tuple(feature for feature in self.inputs if feature.kind == "VISUAL")

    @property
    def state(self) -> PolicyFeature | None:
        """The robot's state, [numbers], if the policy takes it."""
        return next((each for each in self.inputs if each.name == STATE and each.kind == "STATE"), None)

    @property
    def action(self) -> PolicyFeature:
        """Raises CheckpointError if there is none."""
        for feature in self.outputs:
            if feature.name == ACTION and feature.kind == "ACTION":
                return feature
        raise self.refused(f"output_features: '{ACTION}' is missing")

    def check(self, robot: Robot) -> None:
        """Check that every feature is of a kind that a robot gives, and that the robot has as many names."""
        for feature in self.inputs:
            if feature.kind == "VISUAL" and (len(feature.shape) != 3 or feature.shape[0] != 3):
                shape = list(feature.shape)
                raise self.refused(f"input '{feature.name}' has shape {shape}, expected [3, height, width]")
            if feature.kind != "VISUAL" and feature != self.state:
                raise self.refused(
                    f"input '{feature.name}' of type {feature.kind} is not supported; expected VISUAL, "
                    f"and '{STATE}' of type STATE"
                )
        for vector in (self.action, *([self.state] if self.state else [])):
            if len(vector.shape) != 1:
                shape = list(vector.shape)
                raise self.refused(f"'{vector.name}' has shape {shape}, expected one dimension")
        state = None if self.state is None else self.state.shape[0]
        cameras = [camera.name for camera in self.cameras]
        robot.check(actions=self.action.shape[0], state=state, cameras=cameras, source=self.file)
        for name, given in check_harmless((*self.preprocessor, *self.postprocessor)).items():
            if name in cameras and not robot.names(name):
                raise CheckpointError(
                    f"{self.path / PREPROCESSOR}: rename_map: '{name}' was '{given}' in training; say which "
                    f"camera of this robot it is, in {robot.path}: cameras: '{name}': name"
                )

    # -- processors ---------------------------------------------------------------------------------------

    def check_steps(self, before: Sequence[str] = (NORMALIZER,)) -> None:
        """Check that the preprocessor has these steps, in this order, and the postprocessor the inverse normalisation;
        steps that change no value may be anywhere between. Relative actions, if they are on, are made before the
        normalisation and undone after its inverse. Raises CheckpointError."""
        if not self.processed:
            return
        wanted, after = list(before), [UNNORMALIZER]
        if self.config.get(USES_RELATIVE_ACTIONS) is True:
            wanted.insert(wanted.index(NORMALIZER), RELATIVE_ACTIONS)
            after.append(ABSOLUTE_ACTIONS)
        check_order(self.path / PREPROCESSOR, self.preprocessor, wanted)
        check_order(self.path / POSTPROCESSOR, self.postprocessor, after)

    def step(self, name: str) -> ProcessorStep | None:
        """A step of either processor by name."""
        return next((step for step in (*self.preprocessor, *self.postprocessor) if step.name == name), None)

    def normalization(self, feature: PolicyFeature, size: int) -> FeatureNormalization:
        """How a feature of `size` numbers (or colours) is normalised. Raises CheckpointError."""
        step = self.step(UNNORMALIZER if feature.kind == "ACTION" else NORMALIZER)
        told = mode_of(feature, self.config, "normalization_mapping", self.file)
        if step is None:
            return normalization(feature.name, told, size, self._buried(feature))
        config, eps = step.config, step.config.get("eps", 1e-8)
        mode = mode_of(feature, config, "norm_map", step.processor)
        if mode != told:
            raise CheckpointError(
                f"{step.processor}: step '{step.name}': norm_map: {feature.kind} is {mode}, but {self.file} has {told}"
            )
        check_listed(feature, step, mode, self.file)
        only = config.get("normalize_observation_keys")
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < 1:
            raise CheckpointError(f"{step.file}: step '{step.name}': eps: {eps!r} is not a small number")
        if only is not None and not isinstance(only, list):
            raise CheckpointError(f"{step.file}: step '{step.name}': normalize_observation_keys: {only!r} is no list")
        if only is not None and feature.kind != "ACTION" and feature.name not in only:
            return FeatureNormalization("none")
        values = {
            name.rpartition(".")[2]: t for name, t in step.state.items() if name.rpartition(".")[0] == feature.name
        }
        statistics = Statistics(step.file, feature.name + ".", values, eps)
        return normalization(feature.name, mode, size, statistics)

    def _buried(self, feature: PolicyFeature) -> Statistics:
        """Statistics among the weights, in folders without processors."""
        part = "unnormalize_outputs" if feature.kind == "ACTION" else "normalize_inputs"
        prefix = f"{part}.buffer_{feature.name.replace('.', '_')}."
        values = {name[len(prefix) :]: t for name, t in self.tensors.items() if name.startswith(prefix)}
        return Statistics(self.weights, prefix, values, 1e-8)


def translate(source: Path, robot: Robot, base: Path | None = None) -> Translated:
    """A LeRobot folder of any known type. base: of a LoRA adapter, the folder that it was trained on. Raises
    CheckpointError."""
    kind = read_json(source / CONFIG).get("type")
    if not isinstance(kind, str) or kind not in TRANSLATORS:
        raise CheckpointError(f"{source / CONFIG}: type {kind!r} is not known; known: {', '.join(TRANSLATORS)}")
    folder = LeRobotFolder.read(source, base)
    folder.check(robot)
    module = importlib.import_module(TRANSLATORS[kind])
    unknown_keys = check_keys(folder.config, folder.file, module.KEYS, module.IGNORED, module.LATER)
    read: Translator = module.translate
    translated = read(folder, robot)
    notes = (*_notes(folder, robot, unknown_keys), *translated.notes)
    return replace(translated, files=folder.file_names(), notes=notes)


def _notes(folder: LeRobotFolder, robot: Robot, unknown_keys: Collection[str]) -> list[str]:
    """What was taken and why, a sentence each."""
    notes = [f"read as {folder.config['type']} of {folder.version(robot)}"]
    if folder.base is not None:
        notes.append(f"the adapter is merged into the weights of {folder.base}")
    if unknown_keys:
        listed = ", ".join(f"'{key}'" for key in unknown_keys)
        notes.append(f"not known, and off or empty, so taken as absent: {listed} of {CONFIG}")
    for feature in (*folder.inputs, folder.action):
        size = feature.shape[0]
        normalised = folder.normalization(feature, size)
        if normalised.still:
            notes.append(_still_note(folder, robot, feature, normalised))
    return notes


def _still_note(folder: LeRobotFolder, robot: Robot, feature: PolicyFeature, normalised: FeatureNormalization) -> str:
    """Says which numbers of a feature never changed in the training, and what LeRobot, and we, make of them."""
    names: Sequence[str] = [f"number {index}" for index in range(feature.shape[0])]
    if feature.kind == "ACTION":
        names = robot.contract.names
    elif feature == folder.state and robot.state is not None:
        names = robot.state
    listed = ", ".join(names[index] for index in normalised.still)
    if feature.kind == "ACTION":
        return f"{feature.name}: {listed} never changed in the training data: the action stays at that value"
    return (
        f"{feature.name}: {listed} never changed in the training data: as in LeRobot, any difference from that value "
        f"is divided by {normalised.eps:g}, so noise there reaches the policy as a very large number"
    )
