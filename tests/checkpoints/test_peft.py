"""Adapters' folders: what they add to our layers is what they add to the published ones, and what is not a plain LoRA
of this model is refused by file and key, or by file and tensor.

Guards: rows of B in another order than their weight's; a rank or a scale of the wrong pattern; a part of an adapter
that is passed over; a number that makes a merged weight infinite; a regular expression that never ends.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.peft import AdapterTargets, PeftAdapter, read_peft
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.values import shown
from tests.checkpoints.vlm.folders import Written, rewrite, write
from tests.lora.adapters import (
    PREFIX,
    Changes,
    add_to_folder,
    change_config,
    change_tensors,
    linears,
    save_adapter,
    save_factors,
)
from tests.models.test_cogagent import folder as cogagent

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

KINDS = ("smolvlm", "llava", "qwen2_5_vl", "cogagent")
QUERY, KEY = (f"model.text_model.layers.1.self_attn.{each}_proj" for each in "qk")
TOWER = {each: f"model.vision_model.encoder.layers.0.self_attn.{each}_proj" for each in "qkv"}
SHAPES = {QUERY: (48, 48), KEY: (24, 48)} | dict.fromkeys(TOWER.values(), (32, 32))
A, B = (f"{PREFIX}{QUERY}.lora_{each}.weight" for each in "AB")


class Case:
    """A folder, what adapters can change in it, and [out, in] of its linear layers by the folder's names."""

    def __init__(self, written: Written) -> None:
        self.path, self.model = written.path, written.model
        checkpoint = open_vlm(self.path)
        self.targets, self.weights = checkpoint.targets, dict(checkpoint.model.named_parameters())
        sources = [self.targets.source_of(f"{name}.weight") for name in self.targets.layers]
        needed = {each for source in sources for each in source.names}
        tensors = load_file(self.path / "model.safetensors")
        self.shapes = {
            name.removesuffix(".weight"): (len(tensor), tensor.shape[1])
            for name, tensor in tensors.items()
            if tensor.dim() == 2 and plain(name, self.targets) in needed
        }

    def read(self, path: Path) -> PeftAdapter:
        return read_peft(path, self.targets)

    def copied(self, path: Path) -> Path:
        return Path(shutil.copytree(self.path, path))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    def written(kind: str) -> Written:
        path: Path = tmp_path_factory.mktemp(kind)
        return Written(cogagent(path)[0], None) if kind == "cogagent" else write(kind, path)

    return {kind: Case(written(kind)) for kind in KINDS}


@pytest.fixture
def smolvlm(cases: dict[str, Case]) -> Case:
    return cases["smolvlm"]


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A folder that is taken as it is, of smolvlm."""
    return save_factors(tmp_path / "adapter", SHAPES)


def plain(name: str, targets: AdapterTargets) -> str:
    """Without the prefix of the version that wrote it."""
    return next((new + name.removeprefix(old) for old, new in targets.parts if name.startswith(old)), name)


def refused(read: Callable[[Path], object], path: Path, file: str, *said: str) -> None:
    with pytest.raises(CheckpointError) as error:
        read(path)
    for each in (str(path / file), *said):
        assert each in str(error.value)


# What is taken


ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "every-layer": ("", {"rank": 3, "alpha": 6.0}),
    "patterns": (
        "",
        {
            "rank": 2, "use_rslora": True, "alpha_pattern": {"v_proj": 0.5, r".*\.1\..*": 3},
            "rank_pattern": {r"layers\.[01]\.self_attn\.(q|o)_proj": 5, "gate_up_proj|up_proj": 1, "k_proj": 4},
        },
    ),
    "keys-alone": ("k_proj", {"rank": 4}),
    "values-and-half-of-the-gate": ("v_proj|up_proj", {"rank": 2}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ADAPTERS)
def test_factors_are_what_the_adapter_adds_to_the_published_weights(
    kind: str, name: str, cases: dict[str, Case], tmp_path: Path
) -> None:
    """Our weights of the folder with the products in it, minus those of the folder: nothing else changes."""
    case, (wanted, how) = cases[kind], ADAPTERS[name]
    shapes = {layer: shape for layer, shape in case.shapes.items() if layer.endswith(tuple(wanted.split("|")))}
    path = save_factors(tmp_path / "adapter", shapes, **how)
    add_to_folder(case.copied(tmp_path / "changed"), path)
    compare(case, case.read(path), tmp_path / "changed")


def compare(case: Case, adapter: PeftAdapter, changed: Path) -> None:
    found = dict(open_vlm(changed).model.named_parameters())
    assert adapter.factors
    assert adapter.factors.keys() <= case.targets.layers.keys()
    for name, weight in case.weights.items():
        factors = adapter.factors.get(name.removesuffix(".weight"))
        product = torch.zeros_like(weight) if factors is None else factors.b @ factors.a
        torch.testing.assert_close(found[name] - weight, product, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_linear_layer_can_be_adapted(kind: str, cases: dict[str, Case], tmp_path: Path) -> None:
    """But patches' embedding of Qwen2.5-VL, which is published as a convolution."""
    case = cases[kind]
    found = case.read(save_factors(tmp_path, case.shapes)).factors
    assert case.targets.layers.keys() - found.keys() <= {"vision.patch_embed.proj"}
    for name, (a, b) in found.items():
        assert (len(b), a.shape[1]) == case.targets.layers[name]
        assert a.dtype == b.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_has_the_names_of_every_version(kind: str, cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases[kind]
    path = save_factors(tmp_path / "0", case.shapes)
    expected = case.read(path).factors
    forms: dict[str, list[str]] = {}
    for old, new in case.targets.parts:
        forms.setdefault(new, []).append(old)
    tensors = load_file(path / "adapter_model.safetensors")
    for turn in range(1, 1 + max(map(len, forms.values()))):
        renamed = {named(name, forms, case.targets, turn): tensor for name, tensor in tensors.items()}
        assert len(renamed) == len(tensors)
        other = save_factors(tmp_path / str(turn), {})
        save_file(renamed, other / "adapter_model.safetensors")
        found = case.read(other).factors
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name].b @ found[name].a, each.b @ each.a) for name, each in expected.items())


def named(name: str, forms: Mapping[str, list[str]], targets: AdapterTargets, turn: int) -> str:
    """The tensor's name with another prefix of its part, every other time without PEFT's and with the adapter's name in
    it, as a state has it."""
    name = name.removeprefix(PREFIX)
    old, new = next(part for part in targets.parts if name.startswith(part[0]))
    name = forms[new][turn % len(forms[new])] + name.removeprefix(old)
    return name.replace(".weight", ".default.weight") if turn % 2 else PREFIX + name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_factors_are_float32_whatever_is_stored(dtype: torch.dtype, smolvlm: Case, tmp_path: Path) -> None:
    adapter = save_factors(tmp_path, {QUERY: (48, 48)})
    change_tensors(adapter, lambda tensors: tensors.update({name: each.to(dtype) for name, each in tensors.items()}))
    stored = load_file(adapter / "adapter_model.safetensors")
    a, b = smolvlm.read(adapter).factors["language.layers.1.self_attn.q_proj"]
    assert torch.equal(a, stored[A].float())
    assert torch.equal(b, 2 * stored[B].float())


PATTERNS: dict[str, tuple[dict[str, int], int]] = {
    "end": ({"q_proj": 2}, 2),
    "none": ({"proj": 2, "self_attn": 2, "k_proj": 2, "": 2}, 4),
    "first": ({"k_proj": 2, "q_proj": 3, "self_attn.q_proj": 5}, 3),
    "whole": ({QUERY: 2}, 2),
    "anchored": ({"^model.text_model.layers.1.self_attn.q_proj": 2}, 2),
    "anchored-later": ({"^layers.1.self_attn.q_proj": 2}, 4),
    "end-of-it": ({"q_proj$": 2}, 2),
    "not-within-a-name": ({"_proj": 2, "elf_attn.q_proj": 2}, 4),
    "alternatives": ({"k_proj|q_proj|v_proj": 2}, 2),
    "set": ({r"[0-2]\.self_attn\.[qk]_proj": 2}, 2),
    "number": ({r"layers\.\d+\.self_attn\.q_proj": 2}, 2),
    "another-number": ({r"layers\.[2-9]\.self_attn\.q_proj": 2}, 4),
    "anything": ({r".*self_attn.*": 2}, 2),
    "groups": ({r"(?:layers|blocks)\.(0|1)\.(self_attn|mlp)\.q_proj": 2}, 2),
    "optional": ({r"(model\.)?text_model\.layers\.1\.self_attn\.q_proj": 2}, 2),
    "nested": ({"(" * 120 + "q_proj" + ")" * 120: 2}, 2),
    "dots-are-anything": ({"layersX1.self_attn.q_proj": 2, "layers.1.self.attn.q_proj": 3}, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_ranks_and_alphas_are_found_as_peft_finds_them(name: str, smolvlm: Case, tmp_path: Path) -> None:
    patterns, rank = PATTERNS[name]
    path = save_factors(tmp_path, {QUERY: (48, 48)}, alpha=3.0)
    tensors = {A: torch.ones(rank, 48), B: torch.ones(48, rank)}
    save_file(tensors, path / "adapter_model.safetensors")
    change_config(path, rank_pattern=patterns)
    (factors,) = smolvlm.read(path).factors.values()
    torch.testing.assert_close(factors.b, torch.full((48, rank), 3 / rank))
    change_config(path, rank_pattern={}, r=rank, alpha_pattern=patterns)
    (factors,) = smolvlm.read(path).factors.values()
    torch.testing.assert_close(factors.b, torch.full((48, rank), (3 if rank == 4 else rank) / rank))


def test_the_head_is_adapted_beside_its_own_weight(smolvlm: Case, tmp_path: Path) -> None:
    """PEFT saves the weight of an adapted head; it is the model's own."""
    path = save_factors(tmp_path, {"lm_head": (320, 48)})
    alone = smolvlm.read(path).factors["language.lm_head"]
    own = smolvlm.weights["language.lm_head.weight"].clone()
    change_tensors(path, lambda tensors: tensors.update({f"{PREFIX}lm_head.base_layer.weight": own}))
    beside = smolvlm.read(path).factors["language.lm_head"]
    assert torch.equal(beside.a, alone.a)
    assert torch.equal(beside.b, alone.b)


def test_layers_that_nothing_needs_are_passed_over(cases: dict[str, Case], tmp_path: Path) -> None:
    """LLaVA uses features from inside its tower: PEFT adapts the layers behind them too."""
    layers = {f"vision_tower.encoder.layers.{each}.mlp.fc1": (56, 32) for each in (1, 2)}
    assert set(cases["llava"].read(save_factors(tmp_path, layers)).factors) == {"vision.layers.1.mlp.fc1"}


def test_the_digest_covers_both_files(smolvlm: Case, adapter: Path) -> None:
    found = [smolvlm.read(adapter).digest]
    change_config(adapter, lora_alpha=3)
    found.append(smolvlm.read(adapter).digest)
    change_tensors(adapter, lambda tensors: tensors[A].zero_())
    found.append(smolvlm.read(adapter).digest)
    assert len(set(found)) == 3


def test_factors_outlive_their_file(smolvlm: Case, adapter: Path) -> None:
    """They are copies: the file may be written again while the adapter serves."""
    before = smolvlm.read(adapter)
    kept = copy.deepcopy(dict(before.factors))
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))
    assert all(torch.equal(kept[name].a, each.a) for name, each in before.factors.items())
    assert all(torch.equal(kept[name].b, each.b) for name, each in before.factors.items())


# What is refused


KEYS: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"peft_type": "IA3"}, "peft_type: 'IA3' is not supported"),
    "unknown": ({"lora_temperature": 2}, "lora_temperature: is unknown"),
    "unknown-false": ({"use_something": False}, "use_something: is unknown"),
    "rank-missing": ({"r": None}, "r: None is not a whole number"),
    "rank-0": ({"r": 0}, "r: 0 is not from 1 to 1024"),
    "rank-negative": ({"r": -4}, "r: -4 is not from 1 to 1024"),
    "rank-huge": ({"r": 10**30}, "r: a number of 100 bits is not from 1 to 1024"),
    "rank-boolean": ({"r": True}, "r: True is not a whole number"),
    "rank-text": ({"r": "4"}, "r: '4' is not a whole number"),
    "rank-fraction": ({"r": 4.0}, "r: 4.0 is not a whole number"),
    "alpha-negative": ({"lora_alpha": -8}, "lora_alpha: is not a number from 0"),
    "alpha-nan": ({"lora_alpha": float("nan")}, "lora_alpha: is not a number from 0"),
    "alpha-infinite": ({"lora_alpha": float("inf")}, "lora_alpha: is not a number from 0"),
    "alpha-huge": ({"lora_alpha": 1e7}, "lora_alpha: 1e+07 is more than 1e+06"),
    "alpha-boolean": ({"lora_alpha": True}, "lora_alpha: True is not a number"),
    "rslora": ({"use_rslora": "yes"}, "use_rslora: 'yes' is not supported"),
    "dora": ({"use_dora": True}, "use_dora: True is not supported"),
    "bias": ({"bias": "lora_only"}, "bias: 'lora_only' is not supported"),
    "lora-bias": ({"lora_bias": True}, "lora_bias: True is not supported"),
    "whole-modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save: ['lm_head'] is not supported"),
    "replication": ({"layer_replication": [[0, 2], [1, 3]]}, "layer_replication: list of 2 is not supported"),
    "tokens": ({"trainable_token_indices": [3]}, "trainable_token_indices: [3] is not supported"),
    "parameters": ({"target_parameters": ["mlp.experts"]}, "target_parameters: ['mlp.experts'] is not supported"),
    "activated": ({"alora_invocation_tokens": [1, 2]}, "alora_invocation_tokens: [1, 2] is not supported"),
    "arrow": ({"arrow_config": {"top_k": 3}}, "arrow_config: dict of 1 is not supported"),
    "block-diagonal": ({"use_bdlora": {"nblocks": 2}}, "use_bdlora: dict of 1 is not supported"),
    "quantised": ({"use_qalora": True}, "use_qalora: True is not supported"),
    "transposed": ({"fan_in_fan_out": True}, "fan_in_fan_out: True is not supported"),
    "megatron": ({"megatron_config": {"layers": 2}}, "megatron_config: dict of 1 is not supported"),
    "monte-carlo": ({"monteclora_config": {"monteclora_n": 8}}, "monteclora_config: dict of 1 is not supported"),
    "compressed": ({"velora_config": {"num_groups": 32}}, "velora_config: dict of 1 is not supported"),
    "kasa": ({"kasa_config": {"beta": 1}}, "kasa_config: dict of 1 is not supported"),
    **{
        f"start-{start}": ({"init_lora_weights": start}, f"init_lora_weights: '{start}' may change the base model too")
        for start in ("pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "of-tomorrow")
    },
    "ranks-list": ({"rank_pattern": [2]}, "rank_pattern: is not a mapping"),
    "ranks-0": ({"rank_pattern": {"q_proj": 0}}, "rank_pattern.q_proj: 0 is not from 1 to 1024"),
    "ranks-boolean": ({"rank_pattern": {"q_proj": True}}, "rank_pattern.q_proj: True is not a whole number"),
    "ranks-null": ({"rank_pattern": {"q_proj": None}}, "rank_pattern.q_proj: None is not a whole number"),
    "alphas-text": ({"alpha_pattern": {"q_proj": "8"}}, "alpha_pattern.q_proj: '8' is not a number"),
    "alphas-huge": ({"alpha_pattern": {"q_proj": 10**7}}, "alpha_pattern.q_proj: 1e+07 is more than 1e+06"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_what_is_no_plain_lora_is_refused_by_key(name: str, smolvlm: Case, adapter: Path) -> None:
    keys, said = KEYS[name]
    change_config(adapter, **keys)
    refused(smolvlm.read, adapter, "adapter_config.json", f"adapter_config.{said}")


def test_keys_of_training_are_passed_over(smolvlm: Case, adapter: Path) -> None:
    """As PEFT 0.21 writes them."""
    before = smolvlm.read(adapter).factors
    change_config(adapter, **WRITTEN)
    assert smolvlm.read(adapter).factors.keys() == before.keys()
    for start in (True, False, "gaussian", "eva", "orthogonal", "mica"):
        change_config(adapter, init_lora_weights=start)
        smolvlm.read(adapter)


WRITTEN: dict[str, Any] = {
    "alora_invocation_tokens": None, "alpha_pattern": {}, "arrow_config": None,
    "auto_mapping": {"base_model_class": "SmolVLMModel", "parent_library": "transformers"},
    "base_model_name_or_path": "HuggingFaceTB/SmolVLM2-500M", "bias": "none", "corda_config": None,
    "ensure_weight_tying": False, "eva_config": {"rho": 2.0}, "exclude_modules": ["lm_head"], "fan_in_fan_out": False,
    "inference_mode": True, "kasa_config": None, "layer_replication": None, "layers_pattern": "layers",
    "layers_to_transform": [0, 1], "loftq_config": {"loftq_bits": 4}, "lora_bias": False, "lora_dropout": 0.05,
    "lora_ga_config": None, "megatron_config": None, "megatron_core": "megatron.core", "modules_to_save": None,
    "monteclora_config": None, "peft_version": "0.21.2", "qalora_group_size": 16, "revision": "main",
    "target_modules": ["q_proj", "k_proj"], "target_parameters": None, "task_type": None,
    "trainable_token_indices": None, "use_bdlora": None, "use_dora": False, "use_qalora": False, "velora_config": None,
}  # fmt: skip


BAD_PATTERNS = {
    "open": ("(q_proj", "is not a regular expression"),
    "nothing-to-repeat": ("*q_proj", "is not a regular expression"),
    "closes-the-group-around-it": ("q_proj)|(k_proj", "has too many repetitions or alternatives"),
    "long": ("q" * 257, "is longer than 256 characters"),
    "flags": ("(?i)Q_PROJ", "has too many repetitions or alternatives"),
    "flags-in-a-group": ("(?i:Q_PROJ)", "has too many repetitions or alternatives"),
    "looks-ahead": ("(?=q)q_proj", "has too many repetitions or alternatives"),
    "refers": (r"(q)_\1", "has too many repetitions or alternatives"),
    "counts": ("q{1,9}_proj", "has too many repetitions or alternatives"),
    "counts-too-far": ("q{99999999999999}_proj", "has too many repetitions or alternatives"),
    "repeated-group": (r"(\w+)+!", "has too many repetitions or alternatives"),
    "repeated-alternatives": (r"(\w|_)*!", "has too many repetitions or alternatives"),
    "repeated-once-more": (r"(?:(?:\w+)?)+!", "has too many repetitions or alternatives"),
    "optionals": (r"\w?" * 40 + "!", "has too many repetitions or alternatives"),
    "alternatives": ("(?:.|_)" * 30 + "!", "has too many repetitions or alternatives"),
    "four-repetitions": (r".*.*.*.*!", "has too many repetitions or alternatives"),
}  # fmt: skip


@pytest.mark.parametrize("key", ["rank_pattern", "alpha_pattern"])
@pytest.mark.parametrize("name", BAD_PATTERNS)
def test_a_pattern_that_could_take_long_is_refused(name: str, key: str, smolvlm: Case, adapter: Path) -> None:
    """And one that is none."""
    pattern, said = BAD_PATTERNS[name]
    change_config(adapter, **{key: {"k_proj": 4, pattern: 4}})
    refused(smolvlm.read, adapter, "adapter_config.json", f"adapter_config.{key}: {shown(pattern)}", said)


SLOWEST: dict[str, list[str]] = {
    "repetitions": [r"[\w.]*[\w.]*[\w.]*!"],
    "many": [r"[\w.]*[\w.]*" + sign * 2 for sign in "!ABCDEFGHIJKLMNO"],
    "optionals": [".?" * 12 + "!"],
    "alternatives": ["(?:.|.|.|.|.|.|.|.)" * 4 + "!"],
    "both": [r"[\w.]*[\w.]*(.|.|.|.)(.|.|.|.)!"],
    "plain": [f"layers.{each}.mlp.up_proj" for each in range(4096)],
}


@pytest.mark.parametrize("name", SLOWEST)
def test_no_pattern_that_is_taken_takes_long(name: str, cases: dict[str, Case], tmp_path: Path) -> None:
    """A second at most for the layers of this model, whose names are tried with both keys; unbounded, it is hours."""
    case, patterns = cases["llava"], dict.fromkeys(SLOWEST[name], 4)
    path = save_factors(tmp_path, case.shapes)
    change_config(path, rank_pattern=patterns, alpha_pattern=patterns)
    start = time.process_time()
    case.read(path)
    assert time.process_time() - start < 5
    change_config(path, rank_pattern=patterns | {"one_more": 4})
    refused(case.read, path, "adapter_config.json", "rank_pattern: 'one_more' has too many repetitions or alternatives")


def put(name: str, value: Tensor) -> Changes:
    return lambda tensors: tensors.update({name: value})


def drop(name: str) -> Changes:
    return lambda tensors: tensors.pop(name)


def put_layer(layer: str, a: Tensor, b: Tensor) -> Changes:
    return lambda tensors: tensors.update({f"{PREFIX}{layer}.lora_A.weight": a, f"{PREFIX}{layer}.lora_B.weight": b})


def number(name: str, value: float) -> Changes:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[name].view(-1)[5] = value

    return change


def uneven(tensors: dict[str, Tensor]) -> None:
    """Queries' rows that are keys': the joined layer has as many as it should."""
    tensors[f"{PREFIX}{TOWER['q']}.lora_B.weight"] = torch.ones(40, 4)
    tensors[f"{PREFIX}{TOWER['k']}.lora_B.weight"] = torch.ones(24, 4)


TENSORS: dict[str, tuple[Changes, str]] = {
    "a-missing": (drop(A), f"'{QUERY}': lora_A is missing"),
    "b-missing": (drop(B), f"'{QUERY}': lora_B is missing"),
    "a-rank": (put(A, torch.ones(3, 48)), f"'{QUERY}': lora_A has 3 rows and lora_B 4 columns, but the rank is 4"),
    "b-rank": (put(B, torch.ones(48, 5)), f"'{QUERY}': lora_A has 4 rows and lora_B 5 columns, but the rank is 4"),
    "rank": (put_layer(QUERY, torch.ones(8, 48), torch.ones(48, 8)), "lora_A has 8 rows and lora_B 8 columns, but the"),
    "width": (put(A, torch.ones(4, 40)), f"'{QUERY}': lora_A has 40 columns, expected 48"),
    "out": (put(B, torch.ones(40, 4)), f"'{QUERY}': lora_B has 40 rows, expected 48"),
    "no-rows": (put(B, torch.ones(0, 4)), f"'{QUERY}': lora_B has 0 rows, expected 48"),
    "no-columns": (put(A, torch.ones(4, 0)), f"'{QUERY}': lora_A has 0 columns, expected 48"),
    "joined-out": (uneven, f"'{TOWER['q']}': lora_B has 40 rows, expected 32"),
    "flat": (put(A, torch.ones(192)), f"'{QUERY}': lora_A has 1 dimensions, expected 2"),
    "deep": (put(B, torch.ones(48, 4, 1, 1)), f"'{QUERY}': lora_B has 4 dimensions, expected 2"),
    "nan": (number(A, torch.nan), f"tensor '{A}' holds NaN or infinity"),
    "infinite": (number(B, torch.inf), f"tensor '{B}' holds NaN or infinity"),
    "wider-than-float32": (put(A, 1e300 * torch.ones(4, 48).double()), f"'{QUERY}': lora_B lora_A, times 2, may be"),
    "wider-times-0": (put_layer(QUERY, 1e300 * torch.ones(4, 48).double(), torch.zeros(48, 4)), "lora_B lora_A, times"),
    "product": (put_layer(QUERY, torch.full((4, 48), 1e30), torch.full((48, 4), 1e30)), f"'{QUERY}': lora_B lora_A"),
    "whole-numbers": (put(A, torch.ones(4, 48, dtype=torch.int32)), f"tensor '{A}' has type torch.int32, expected"),
    "truth-values": (put(B, torch.ones(48, 4, dtype=torch.bool)), f"tensor '{B}' has type torch.bool, expected"),
    "complex": (put(B, torch.ones(48, 4, dtype=torch.complex64)), f"tensor '{B}' has type torch.complex64, expected"),
    "unknown-layer": (
        put_layer("model.text_model.layers.9.mlp.up_proj", torch.ones(4, 48), torch.ones(80, 4)),
        "'model.text_model.layers.9.mlp.up_proj' belongs to no linear layer of this model",
    ),
    "norm": (
        put_layer("model.text_model.norm", torch.ones(4, 48), torch.ones(48, 4)),
        "'model.text_model.norm' belongs to no linear layer of this model",
    ),
    "convolution": (
        put_layer("model.vision_model.embeddings.patch_embedding", torch.ones(4, 3, 8, 8), torch.ones(32, 4, 1, 1)),
        "'model.vision_model.embeddings.patch_embedding' belongs to no linear layer of this model",
    ),
    "unknown-part": (
        put_layer("model.audio_model.proj", torch.ones(4, 48), torch.ones(48, 4)),
        f"tensor '{PREFIX}model.audio_model.proj.lora_A.weight' belongs to no part of this model",
    ),
    "twice": (put(A.removeprefix(PREFIX), torch.ones(4, 48)), f"repeats '{QUERY}' under another name"),
    "twice-by-adapter": (put(A.replace("_A.", "_A.default."), torch.ones(4, 48)), f"repeats '{QUERY}' under another"),
    "dora": (put(f"{PREFIX}{QUERY}.lora_magnitude_vector", torch.ones(48)), "vector' is DoRA's, which is not"),
    "embedding": (
        put(f"{PREFIX}model.text_model.embed_tokens.lora_embedding_A", torch.ones(4, 320)),
        "embed_tokens.lora_embedding_A' adapts an embedding, which is not supported",
    ),
    "bias": (put(f"{PREFIX}{QUERY}.bias", torch.ones(48)), f"tensor '{PREFIX}{QUERY}.bias' is a bias, which is not"),
    "lora-bias": (put(B.replace("weight", "bias"), torch.ones(48)), "lora_B.bias' is a bias, which is not supported"),
    "whole": (put(f"{PREFIX}lm_head.weight", torch.ones(320, 48)), "lm_head.weight' is neither lora_A nor lora_B"),
    "whole-layer": (put(f"{PREFIX}{QUERY}.base_layer.weight", torch.ones(48, 48)), "is neither lora_A nor lora_B"),
    "head-alone": (put(f"{PREFIX}lm_head.base_layer.weight", torch.ones(320, 48)), "'lm_head': lora_A is missing"),
    "other-variant": (put(f"{PREFIX}{QUERY}.lora_monteclora_sampler.x", torch.ones(4)), "is neither lora_A nor lora_B"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_that_does_not_fit_is_refused_by_name(name: str, smolvlm: Case, adapter: Path) -> None:
    change, said = TENSORS[name]
    change_tensors(adapter, change)
    refused(smolvlm.read, adapter, "adapter_model.safetensors", said)


def test_a_scale_that_overflows_is_refused(smolvlm: Case, adapter: Path) -> None:
    change_tensors(adapter, put(B, torch.full((48, 4), 1e34)))
    smolvlm.read(adapter)
    change_config(adapter, alpha_pattern={"q_proj": 1e6})
    refused(
        smolvlm.read, adapter, "adapter_model.safetensors", f"'{QUERY}': lora_B lora_A, times 250000, may be beyond"
    )


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no such type")
def test_a_type_that_torch_cannot_convert_is_refused(smolvlm: Case, adapter: Path) -> None:
    change_tensors(adapter, put(A, torch.zeros(4, 24, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)))
    refused(smolvlm.read, adapter, "adapter_model.safetensors", "not implemented for 'Float4_e2m1fn_x2'")


def test_a_resized_head_is_refused(smolvlm: Case, tmp_path: Path) -> None:
    path = save_factors(tmp_path, {"lm_head": (320, 48)})
    change_tensors(path, put(f"{PREFIX}lm_head.base_layer.weight", torch.ones(324, 48)))
    refused(smolvlm.read, path, "adapter_model.safetensors", "'lm_head': base_layer has shape [324, 48], expected")


def test_a_head_that_is_the_embedding_is_not_adapted(smolvlm: Case, tmp_path: Path) -> None:
    """Its tensor is one that a folder may leave out; the adapter's is not."""
    tied = smolvlm.copied(tmp_path / "tied")
    rewrite(tied, "config.json", tie_word_embeddings=True)
    tensors = load_file(tied / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tied / "model.safetensors")
    path = save_factors(tmp_path / "adapter", {"lm_head": (320, 48), QUERY: (48, 48)})
    targets = open_vlm(tied).targets
    refused(lambda each: read_peft(each, targets), path, "adapter_model.safetensors", "'lm_head' belongs to no linear")


def test_a_layer_under_the_names_of_two_versions_is_refused(cases: dict[str, Case], tmp_path: Path) -> None:
    old, new = (f"{each}.layers.0.self_attn.q_proj" for each in ("language_model.model", "model.language_model"))
    path = save_factors(tmp_path, {old: (48, 48), new: (48, 48)})
    refused(cases["llava"].read, path, "adapter_model.safetensors", f"repeats '{old}' under another name")
    change_tensors(path, drop(f"{PREFIX}{old}.lora_B.weight"))
    change_tensors(path, drop(f"{PREFIX}{new}.lora_A.weight"))
    refused(cases["llava"].read, path, "adapter_model.safetensors", f"repeats '{old}' under another name")


@pytest.mark.parametrize("dims", [2, 5])
def test_the_convolution_of_qwen_is_refused(dims: int, cases: dict[str, Case], tmp_path: Path) -> None:
    """Here it is a linear layer, of another width."""
    layer = "visual.patch_embed.proj"
    path = save_factors(tmp_path, {layer: (32, 48)})
    if dims == 5:
        change_tensors(path, put_layer(layer, torch.ones(4, 3, 2, 4, 4), torch.ones(32, 4, 1, 1, 1)))
    said = "has 5 dimensions, expected 2: it is no linear layer" if dims == 5 else "expected 5 dimensions"
    refused(cases["qwen2_5_vl"].read, path, "adapter_model.safetensors", f"'{layer}': ", said)


@pytest.mark.parametrize("rows", [80, 159, 161, 320])
def test_both_halves_of_a_joined_layer_must_be_there(rows: int, cases: dict[str, Case], tmp_path: Path) -> None:
    layer = "model.layers.0.mlp.gate_up_proj"
    path = save_factors(tmp_path, {layer: (rows, 48)})
    refused(cases["cogagent"].read, path, "adapter_model.safetensors", f"'{layer}': lora_B has ", "rows, expected 80")


def test_cross_attention_is_not_adapted(cases: dict[str, Case], tmp_path: Path) -> None:
    layer = "model.layers.0.cross_attn.q_proj"
    path = save_factors(tmp_path, {layer: (24, 48)})
    refused(cases["cogagent"].read, path, "adapter_model.safetensors", f"'{layer}' belongs to no linear layer")


def pickled(path: Path) -> None:
    """A pickle under the name of safe tensors."""
    torch.save({A: torch.ones(4, 48)}, path / "adapter_model.safetensors")


def old_pickle(path: Path) -> None:
    torch.save({A: torch.ones(4, 48)}, path / "adapter_model.safetensors", _use_new_zipfile_serialization=False)


def pickle_alone(path: Path) -> None:
    (path / "adapter_model.safetensors").unlink()
    torch.save({A: torch.ones(4, 48)}, path / "adapter_model.bin")


def cut(file: str, end: int | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / file).write_bytes((path / file).read_bytes()[:end])

    return change


def replaced(file: str, content: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / file).write_bytes(content)

    return change


FILES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "no-config": (lambda path: (path / "adapter_config.json").unlink(), "adapter_config.json", "file not found"),
    "half-config": (cut("adapter_config.json", 30), "adapter_config.json", "not JSON"),
    "list": (replaced("adapter_config.json", b"[]"), "adapter_config.json", "expected an object, got list"),
    "twice": (replaced("adapter_config.json", b'{"r": 4, "r": 4}'), "adapter_config.json", "key 'r' is given more"),
    "no-weights": (
        lambda path: (path / "adapter_model.safetensors").unlink(), "adapter_model.safetensors", "file not found",
    ),
    "pickle": (pickle_alone, "adapter_model.safetensors", "adapter_model.bin is a pickle and is refused"),
    "pickle-renamed": (pickled, "adapter_model.safetensors", "is a pickle despite its name"),
    "old-pickle-renamed": (old_pickle, "adapter_model.safetensors", "is a pickle despite its name"),
    "truncated": (cut("adapter_model.safetensors", -64), "adapter_model.safetensors", "not a readable safetensors"),
    "half-header": (cut("adapter_model.safetensors", 60), "adapter_model.safetensors", "not a readable safetensors"),
    "empty": (cut("adapter_model.safetensors", 0), "adapter_model.safetensors", "not a readable safetensors"),
    "no-tensors": (
        lambda path: save_file({}, path / "adapter_model.safetensors"), "adapter_model.safetensors", "holds no tensor",
    ),
    "a-folder-as-a-file": (lambda path: (path / "task_head.json").mkdir(), "task_head.json", "is not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_half_a_folder_is_refused_by_file(name: str, smolvlm: Case, adapter: Path) -> None:
    change, file, said = FILES[name]
    change(adapter)
    refused(smolvlm.read, adapter, file, said)


# PEFT's own folders


@pytest.mark.parametrize("kind", ["smolvlm", "llava", "qwen2_5_vl"])
@pytest.mark.parametrize("stabilised", [True, False])
def test_folders_of_peft_are_read_as_they_are(
    kind: str, stabilised: bool, cases: dict[str, Case], tmp_path: Path
) -> None:
    """The head's too, beside which PEFT saves the head."""
    peft = pytest.importorskip("peft", exc_type=ImportError)
    case = cases[kind]
    config = peft.LoraConfig(
        r=4, lora_alpha=6, use_rslora=stabilised, init_lora_weights=False, lora_dropout=0.1,
        target_modules=["q_proj", "k_proj", "up_proj", "fc1", "qkv", "out_proj", "lm_head"],
        rank_pattern={"k_proj": 2, r"layers\.[01]\.mlp\.up_proj": 3}, alpha_pattern={r".*\.1\..*": 10},
    )  # fmt: skip
    model = peft.get_peft_model(copy.deepcopy(case.model), config)
    model.save_pretrained(tmp_path / "adapter")
    changed = case.copied(tmp_path / "changed")
    model.merge_and_unload().save_pretrained(tmp_path / "merged")
    shutil.copy(tmp_path / "merged" / "model.safetensors", changed)
    compare(case, case.read(tmp_path / "adapter"), changed)
    names = set(load_file(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert f"{PREFIX}lm_head.base_layer.weight" in names


VARIANTS: dict[str, tuple[dict[str, Any], str]] = {
    "dora": ({"use_dora": True}, "use_dora"),
    "bias": ({"bias": "all"}, "bias"),
    "lora-bias": ({"lora_bias": True}, "lora_bias"),
    "modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    "tokens": ({"trainable_token_indices": [3, 4]}, "trainable_token_indices"),
    "embedding": ({"target_modules": ["embed_tokens"]}, "embed_tokens"),
    "replication": ({"layer_replication": [(0, 2), (1, 3)]}, "layer_replication"),
    "pissa": ({"init_lora_weights": "pissa"}, "init_lora_weights"),
    "olora": ({"init_lora_weights": "olora"}, "init_lora_weights"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_what_peft_saves_of_other_kinds_is_refused(name: str, smolvlm: Case, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", exc_type=ImportError)
    keys, said = VARIANTS[name]
    model = smolvlm.model.model.text_model if name == "replication" else smolvlm.model
    config = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj"]} | keys)
    peft.get_peft_model(copy.deepcopy(model), config).save_pretrained(tmp_path)
    refused(smolvlm.read, tmp_path, "adapter_model.safetensors" if name == "embedding" else "adapter_config.json", said)


def test_every_key_that_peft_writes_is_known(smolvlm: Case, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", exc_type=ImportError)
    path = save_adapter(tmp_path, smolvlm.model)
    given = peft.LoraConfig(target_modules=sorted(linears(smolvlm.model, ".*q_proj"))).to_dict()
    keys = {key: sorted(value) if isinstance(value, set) else value for key, value in given.items()}
    change_config(path, **json.loads(json.dumps(keys)) | {"r": 4})
    smolvlm.read(path)
