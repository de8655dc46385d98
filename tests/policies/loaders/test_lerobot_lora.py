"""LoRA adapters of LeRobot that do not fit, each refused by name; layers that were trained whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.cli.main import main
from auras_ros.policies.loaders import lerobot
from auras_ros.policies.loaders.lerobot_lora import merged_tensors
from auras_ros.policies.loaders.open import load
from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders.lerobot_tiny import edit_json, edit_tensors
from tests.policies.loaders.reference import DATA
from tests.policies.loaders.tiny_vla import shrink_matrix

KEPT = DATA / "lerobot_releases" / "0.6.1"
ADAPTER, BASE = KEPT / "smolvla_lora", KEPT / "smolvla_lora_base"
WEIGHTS = "adapter_model.safetensors"
Edit = Callable[[Path, Path], Any]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_matrix(monkeypatch)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Copies of (adapter, base) that a test may spoil."""
    return Path(shutil.copytree(ADAPTER, tmp_path / "lora")), Path(shutil.copytree(BASE, tmp_path / "base"))


def first_layer(tensors: dict[str, Tensor]) -> str:
    """The name of an adapted layer, without its factor."""
    return next(name for name in sorted(tensors) if name.endswith("lora_A.weight")).removesuffix(".lora_A.weight")


def on_adapter(edit: Callable[[dict[str, Tensor], str], Any]) -> Edit:
    return lambda lora, _base: edit_tensors(lora / WEIGHTS, lambda t: edit(t, first_layer(t)))


def settings(**changes: Any) -> Edit:
    return lambda lora, _base: edit_json(lora / "adapter_config.json", lambda raw: raw.update(changes))


FAULTS: dict[str, tuple[Edit, str]] = {
    "both kinds of weights": (
        lambda lora, base: shutil.copy(base / "model.safetensors", lora),
        "lora: has both model.safetensors and adapter_config.json",
    ),
    "a base of another type": (
        lambda _lora, base: edit_json(base / "config.json", lambda raw: raw.update(type="act")),
        "base/config.json: type 'act', but the adapter is of 'smolvla'",
    ),
    "a base without weights": (
        lambda _lora, base: (base / "model.safetensors").unlink(),
        "base/model.safetensors: file not found",
    ),
    "a base without the layer": (
        lambda _lora, base: edit_tensors(base / "model.safetensors", lambda t: t.pop("model.state_proj.weight")),
        "adapts 'model.state_proj.weight', which .*base/model.safetensors does not have",
    ),
    "half an adapter": (on_adapter(lambda t, name: t.pop(f"{name}.lora_B.weight")), "lora_B is missing"),
    "another rank": (settings(r=8), "the rank is 8"),
    "another kind of adapter": (settings(use_dora=True), "use_dora: True is not supported"),
    "DoRA's tensor": (
        on_adapter(lambda t, name: t.update({f"{name}.lora_magnitude_vector": torch.ones(4)})),
        "is DoRA's, which is not supported",
    ),
    "a layer of another width": (
        on_adapter(lambda t, name: t.update({f"{name}.lora_A.weight": torch.ones(4, 5)})),
        "lora_A has 5 columns, expected",
    ),
    "whole numbers": (
        on_adapter(lambda t, name: t.update({f"{name}.lora_A.weight": torch.ones(4, 16, dtype=torch.int32)})),
        "has type torch.int32, expected floating point",
    ),
    "a tensor that nothing says": (
        on_adapter(lambda t, _name: t.update({"base_model.model.model.action_out_proj.weight": torch.ones(6, 12)})),
        "layers that were trained whole are not supported",
    ),
    "an adapter of nothing": (on_adapter(lambda t, _name: t.clear()), "holds no tensor of an adapter"),
    "modules that are no list": (settings(modules_to_save="all"), "modules_to_save: 'all' is not a list of names"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_adapter_that_does_not_fit_is_refused(fault: str, pair: tuple[Path, Path]) -> None:
    spoil, said = FAULTS[fault]
    lora, base = pair
    spoil(lora, base)
    with pytest.raises(CheckpointError, match=said):
        lerobot.translate(lora, Robot.load(lora / "robot.json"), base)


def test_a_layer_that_was_trained_whole_takes_the_base_s_place(pair: tuple[Path, Path]) -> None:
    lora, base = pair
    name = "model.action_out_proj.weight"
    trained = torch.full_like(load_file(base / "model.safetensors")[name], 0.25)
    settings(modules_to_save=["action_out_proj"])(lora, base)
    edit_tensors(
        lora / WEIGHTS,
        lambda t: (
            [t.pop(key) for key in list(t) if "action_out_proj" in key],
            t.update({f"base_model.model.{name}": trained}),
        ),
    )
    assert torch.equal(merged_tensors(lora, base)[name], trained)


def test_the_base_s_names_may_be_openpi_s(pair: tuple[Path, Path]) -> None:
    lora, base = pair
    expected = merged_tensors(lora, base)
    weights = load_file(base / "model.safetensors")
    save_file({key.removeprefix("model."): t for key, t in weights.items()}, base / "model.safetensors")
    merged = merged_tensors(lora, base)
    assert merged.keys() == {key.removeprefix("model.") for key in expected}
    assert all(torch.equal(merged[key.removeprefix("model.")], t) for key, t in expected.items())


def test_the_command_merges_and_the_result_needs_no_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(ADAPTER), "--base", str(BASE), "--out", str(tmp_path / "ours")]) == 0
    assert f"the adapter is merged into the weights of {BASE}" in capsys.readouterr().out
    assert load(tmp_path / "ours").verified


def test_without_a_base_the_folder_is_named_for_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(ADAPTER), "--out", str(tmp_path / "ours")]) == 1
    assert "is a LoRA adapter (adapter_config.json, no model.safetensors) of the base" in capsys.readouterr().err


def test_a_base_for_what_is_no_adapter_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = KEPT / "act_wide_trained"
    assert main(["convert", str(folder), "--base", str(BASE), "--out", str(tmp_path / "ours")]) == 1
    assert "has no adapter_config.json: it is no LoRA adapter and takes no base" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["convert", str(DATA / "diffusion_policy" / "hybrid.ckpt"), "--base", str(BASE), "--out", "x"])
    assert "--base: is for LoRA adapters of LeRobot alone" in capsys.readouterr().err


def test_an_adapter_without_the_policy_s_config_is_said_to_lack_it(pair: tuple[Path, Path]) -> None:
    lora, _base = pair
    (lora / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"a LoRA adapter \(adapter_config.json\) without the policy's config"):
        load(lora)
