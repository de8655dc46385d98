"""LeRobot's DiffusionPolicy in a separate process: made from a seed, run on given inputs and noise, and timed.

This file is run by the Python of an environment that has LeRobot and may lack this package, so it imports nothing from
it. Each line on stdin is a JSON object, answered by one on stdout; tensors are exchanged in safetensors files. It never
changes what LeRobot computes. The timed part is LeRobot's own inference: `generate_actions`, without gradients, from
normalised tensors on the host to the chunk on the host. LeRobot's processors before and after it are left out, in its
favour.

    {"do": "hello"}                                               {"versions": {...}}
    {"do": "make", "folder", "shape", "seed", "device"}           {"million": 12.3, "steps": 100}
    {"do": "observe", "inputs"}  the observations, used in turn   {}
    {"do": "compile"}            the U-Net, as compile_model      {"seconds": 61.5, "mode": "reduce-overhead"}
    {"do": "outputs", "inputs", "outputs", "compiled"}            {}
    {"do": "time", "chunks", "seconds", "compiled"}               {"seconds": [0.41, 0.40, ...]}

A failed request is answered by {"error": "..."}.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]

import gc  # noqa: E402
import importlib  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
from importlib import metadata  # noqa: E402
from typing import Any, TextIO  # noqa: E402

PACKAGES = ("torch", "torchvision", "lerobot", "diffusers")
OPERATORS = (
    "operator torchvision::"  # the start of torchvision's error if its compiled part was built for another torch
)
STATE, IMAGES, ACTION = "observation.state", "observation.images", "action"
LOWER, UPPER = -2.0, 3.0  # of every action, in units of the robot; not -1 and 1, which normalisation does not change


def main() -> None:
    answers = _own_stdout()
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request.pop("do"))(**request)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            said = str(error).strip().partition("\n")[0]
            answer = {"error": f"{type(error).__name__}: {said}"}
        print(json.dumps(answer), file=answers, flush=True)


def _own_stdout() -> TextIO:
    """A stream to the original stdout for answers; stdout itself now goes to stderr, for the output of libraries."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _import(name: str) -> Any:
    return importlib.import_module(f"lerobot.{name}")


def prepare_imports() -> None:
    """Make only LeRobot's diffusion policy importable: `lerobot.policies` imports all policies, and each needs further
    packages. A torchvision whose compiled operators were built for another torch is used without them: a ResNet needs
    none."""
    found = importlib.util.find_spec("lerobot")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"no module named 'lerobot' in the environment of {sys.executable}")
    bare = types.ModuleType("lerobot.policies")
    bare.__path__ = [str(Path(found.submodule_search_locations[0]) / "policies")]
    sys.modules.setdefault("lerobot.policies", bare)
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if not str(error).startswith(OPERATORS):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        shapes = "torchvision._meta_registrations"  # of those operators' results
        sys.modules[shapes] = types.ModuleType(shapes)
        importlib.import_module("torchvision")


class Peer:
    """A method for each request, with the request's other keys as its arguments."""

    def __init__(self) -> None:
        self._policy: Any = None
        self._after: Any = None  # LeRobot's own postprocessor
        self._networks: dict[bool, Any] = {}  # the U-Net, compiled or not
        self._observations: list[dict[str, Any]] = []

    def hello(self) -> dict[str, Any]:
        prepare_imports()
        import torch

        torch.set_num_threads(1)
        torch.backends.cudnn.benchmark = True  # as LeRobot's own scripts set it
        torch.backends.cudnn.allow_tf32 = False  # as on our side
        _import("policies.diffusion.modeling_diffusion")
        return {"versions": {name: _version(name) for name in PACKAGES} | {"python": sys.version.split()[0]}}

    def make(self, folder: str, shape: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        """A policy with random weights, saved as LeRobot saves a trained one. shape: cameras, image_px, state, actions,
        and `config`, the keywords of LeRobot's config."""
        import torch

        features = _features(shape)
        settings = {"crop_shape": None, "pretrained_backbone_weights": None, "push_to_hub": False, "device": device}
        torch.manual_seed(seed)
        config = _import("policies.diffusion.configuration_diffusion").DiffusionConfig(
            **features, **settings, **shape["config"]
        )
        self._policy = _import("policies.diffusion.modeling_diffusion").DiffusionPolicy(config).eval()
        _enliven(self._policy)
        self._policy.to(device)
        processors = _import("policies.diffusion.processor_diffusion")
        before, self._after = processors.make_diffusion_pre_post_processors(config, _statistics(features))
        for part in (self._policy, before, self._after):
            part.save_pretrained(folder)
        self._networks = {False: self._policy.diffusion.unet}
        million = sum(each.numel() for each in self._policy.parameters()) / 1e6
        return {"million": million, "steps": self._policy.diffusion.num_inference_steps}

    def observe(self, inputs: str) -> dict[str, Any]:
        """The observations of `time`: tensors images [N, history, cameras, 3, h, w], state [N, history, numbers]."""
        tensors = _load(inputs)
        pairs = zip(tensors["images"], tensors["state"], strict=True)
        self._observations = [{IMAGES: images[None], STATE: state[None]} for images, state in pairs]
        return {}

    def compile(self) -> dict[str, Any]:
        """Compile as LeRobot does with `compile_model`, and run a first request."""
        import torch

        mode = getattr(self._policy.config, "compile_mode", "reduce-overhead")
        began_s = time.perf_counter()
        self._networks[True] = torch.compile(self._networks[False], mode=mode)
        self._request(0, compiled=True)
        return {"seconds": time.perf_counter() - began_s, "mode": mode}

    def outputs(self, inputs: str, outputs: str, compiled: bool) -> dict[str, Any]:
        """Writes `actions` [N, chunk, channels], chunks in the robot's units, from `images`, `state` and `noise` [N,
        draws, horizon, channels]. The noise replaces LeRobot's random draws: the sample, then that of each step."""
        import torch
        from safetensors.torch import save_file

        self._policy.diffusion.unet = self._networks[compiled]
        tensors = _load(inputs)
        cases = zip(tensors["images"], tensors["state"], tensors["noise"], strict=True)
        made = [self._given(images[None], state[None], noise) for images, state, noise in cases]
        save_file({"actions": torch.cat(made).contiguous()}, outputs)
        return {}

    def _given(self, images: Any, state: Any, noise: Any) -> Any:
        """One chunk with the given noise instead of random draws. Raises RuntimeError if LeRobot draws more."""
        import torch

        scheduling_ddpm: Any = importlib.import_module("diffusers.schedulers.scheduling_ddpm")
        rest = iter(noise[1:, None])
        drawn = scheduling_ddpm.randn_tensor

        def given(*_shape: Any, **where: Any) -> Any:
            draw = next(rest, None)
            if draw is None:
                raise RuntimeError(f"{len(noise)} draws of noise were given, but LeRobot draws more")
            return draw.to(where.get("device", "cpu"))

        scheduling_ddpm.randn_tensor = given
        try:
            device = self._policy.config.device
            batch = {IMAGES: images.to(device), STATE: state.to(device)}
            with torch.inference_mode():
                chunk = self._policy.diffusion.generate_actions(batch, noise=noise[:1].to(device))
                return self._after(chunk).cpu()
        finally:
            scheduling_ddpm.randn_tensor = drawn

    def time(self, chunks: int, seconds: float, compiled: bool) -> dict[str, Any]:
        """Run requests one after another, on the observations in turn, until there are enough; returns their durations,
        without the first one."""
        gc.collect()
        self._request(-1, compiled)
        took: list[float] = []
        while len(took) < chunks or sum(took) < seconds:
            took.append(self._request(len(took), compiled))
        return {"seconds": took}

    def _request(self, number: int, compiled: bool) -> float:
        """Seconds of one chunk, from an observation on the host to actions on the host."""
        import torch

        policy, seen = self._policy, self._observations[number % len(self._observations)]
        policy.diffusion.unet = self._networks[compiled]
        began_s = time.perf_counter()
        with torch.inference_mode():
            batch = {name: tensor.to(policy.config.device) for name, tensor in seen.items()}
            policy.diffusion.generate_actions(batch).cpu()
        return time.perf_counter() - began_s


def _features(shape: dict[str, Any]) -> dict[str, Any]:
    kinds = _import("configs.types")
    kind, feature = kinds.FeatureType, kinds.PolicyFeature
    size = (3, *shape["image_px"])
    pictures = {f"{IMAGES}.camera{i}": feature(kind.VISUAL, size) for i in range(shape["cameras"])}
    return {
        "input_features": {**pictures, STATE: feature(kind.STATE, (shape["state"],))},
        "output_features": {ACTION: feature(kind.ACTION, (shape["actions"],))},
    }


def _statistics(features: dict[str, Any]) -> dict[str, Any]:
    """Statistics of an invented data set. Only those of actions matter: observations are already normalised."""
    import torch

    made = {}
    for name, feature in {**features["input_features"], **features["output_features"]}.items():
        one = torch.ones((3, 1, 1) if name.startswith(IMAGES) else feature.shape)
        made[name] = {"min": LOWER * one, "max": UPPER * one, "mean": 0.5 * one, "std": 0.25 * one}
    return made


def _enliven(policy: Any) -> None:
    """Scale up the weights that make actions depend on the images. With plain random weights the actions are nearly the
    same for all observations, and comparing outputs would prove little."""
    import torch

    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "cond_encoder" in name or name.endswith("pool.nets.weight"):
                parameter.mul_(3)


def _load(path: str) -> Any:
    from safetensors.torch import load_file

    return load_file(path)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    main()
