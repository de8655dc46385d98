"""Opens a published folder of a vision-language model; sizes and names are checked before memory is spent.

Files that are read: config.json, generation_config.json, the image processor's (preprocessor_config.json, or within
processor_config.json), tokenizer.json, tokenizer_config.json, the chat template, and safetensors. Nothing of the folder
is executed but its chat template, in a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.dtype import runtime_dtype, stored_dtype
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import digest
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.limits import check_sizes
from auras_ros.checkpoints.peft import AdapterTargets
from auras_ros.checkpoints.shards import Shards
from auras_ros.checkpoints.tensors import fill
from auras_ros.checkpoints.tokenizer import TOKENIZER
from auras_ros.checkpoints.vlm import cogagent, idefics3, llava, qwen_vl
from auras_ros.checkpoints.vlm.chat import SETTINGS, TEMPLATE, TEMPLATE_JSON, VlmPrompts
from auras_ros.checkpoints.vlm.form import HEAD, WORDS, VlmForm
from auras_ros.checkpoints.vlm.pictures import ImageProcessor
from auras_ros.checkpoints.vlm.sources import SourcedTensors, linked
from auras_ros.models.linear import bfloat16_is_faster
from auras_ros.models.sampler import Sampling
from auras_ros.models.vlm import Vlm
from auras_ros.values import shown

CONFIG, GENERATION = "config.json", "generation_config.json"
PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
TEXT_FILES = frozenset(
    {CONFIG, GENERATION, PREPROCESSOR, PROCESSOR, SETTINGS, TEMPLATE, TEMPLATE_JSON, TOKENIZER}
)  # all that is read of a folder beside its weights
FORMS: Mapping[str, Callable[[ConfigReader], VlmForm]] = {
    "idefics3": idefics3.read,
    "smolvlm": idefics3.read,
    "llava": llava.read,
    "qwen2_5_vl": qwen_vl.read,
    "cogagent": cogagent.read,
}


@dataclass(frozen=True, eq=False)
class VlmCheckpoint:
    """stop_ids: tokens that end an answer. length: tokens of prompt and answer together, at most. stored: the type of
    the weights in the file. sampling: where a request says nothing. targets: what adapters can change."""

    name: str
    digest: str
    model: Vlm
    prompts: VlmPrompts
    stop_ids: frozenset[int]
    length: int
    stored: torch.dtype
    sampling: Sampling
    targets: AdapterTargets


def open_vlm(folder: Path, dtype: str = "auto", device: str = "cpu", weights: bool = True) -> VlmCheckpoint:
    """A model folder, its weights on the CPU in the type that `runtime_dtype` gives; but weights that are stored in
    bfloat16 stay so on a CPU that is measured to multiply it faster. weights: False leaves the model on the meta device
    and checks what does not need them. Raises CheckpointError, naming the file and the key or tensor."""
    path = folder / CONFIG
    values = read_json(path)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FORMS:
        raise CheckpointError(f"{path}: model_type: {shown(kind)} is not known; known: {', '.join(sorted(FORMS))}")
    with refusing(path, ValueError, TypeError, RuntimeError):  # torch: a size that overflows
        form = FORMS[kind](ConfigReader(values, "config"))
        check_sizes("config", "", asdict(form.sizes), 0)
        with torch.device("meta"):
            model = form.build()
    prompts = VlmPrompts(
        folder, _processor(folder, form), form.image_token, form.image_token_id, form.length, form.vocabulary
    )
    path = folder / GENERATION
    generation = read_json(path) if path.is_file() else {}
    stop_ids = _stop_ids(folder, values, generation, form.vocabulary)
    with refusing(path, ValueError, TypeError):
        sampling = _sampling(generation)
    shards = Shards(folder)
    weight_files = shards.file_names()
    tensors = linked(list(model.state_dict()), shards, form.parts, form.source_of, form.is_ignored)
    _check_numbers(folder, tensors, model)
    _check_head(tensors, model)
    targets = AdapterTargets(_linears(model), form.parts, form.source_of, form.is_ignored, form.sizes.language.width)
    stored = stored_dtype(tensors)
    if weights:
        model = _filled(model, tensors, folder, dtype, device, stored)
    return VlmCheckpoint(
        name=folder.resolve().name,
        digest=digest(folder, TEXT_FILES | weight_files),
        model=model.eval().requires_grad_(False),
        prompts=prompts,
        stop_ids=stop_ids,
        length=form.length,
        stored=stored,
        sampling=sampling,
        targets=targets,
    )


def _filled(model: Vlm, tensors: SourcedTensors, folder: Path, dtype: str, device: str, stored: torch.dtype) -> Vlm:
    kept = dtype == "auto" and stored == torch.bfloat16 and device == "cpu" and bfloat16_is_faster()
    model = model.to(stored if kept else runtime_dtype(dtype, device, stored)).to_empty(device="cpu")
    fill(model, tensors, folder, {name: tensors.origin(name) for name in tensors})
    return model


def _check_numbers(folder: Path, tensors: SourcedTensors, model: Vlm) -> None:
    """Before memory is spent: a small file cannot fill a large model."""
    given = sum(numbers for _, numbers in tensors.kinds())
    needed = sum(parameter.numel() for parameter in model.parameters())
    if needed > 2 * given:
        raise CheckpointError(f"{folder}: the tensors have {given:,} numbers, but the model of {CONFIG} has {needed:,}")


def _check_head(tensors: SourcedTensors, model: Vlm) -> None:
    """A tied model has no head of its own; one that is stored must be the embedding."""
    head = None if model.language.lm_head is not None else tensors.stored(HEAD)
    if head is not None and not torch.equal(head, tensors[WORDS]):
        origin = tensors.origin(WORDS)
        raise CheckpointError(f"{origin}: lm_head.weight differs from it, but tie_word_embeddings says that it is one")


def _linears(model: Vlm) -> dict[str, tuple[int, int]]:
    """[out, in] of each linear layer that tokens or images go through once."""
    return {
        name: (layer.out_features, layer.in_features)
        for name, layer in model.named_modules()
        if type(layer) is nn.Linear and ".cross_attn." not in name
    }


def _sampling(generation: Mapping[str, Any]) -> Sampling:
    """What generation_config.json asks for where a request says nothing; greedy without it."""
    given = {each.name: generation[each.name] for each in fields(Sampling) if generation.get(each.name) is not None}
    if not generation.get("do_sample", False):
        given["temperature"] = 0.0
    return Sampling(**given)


def _processor(folder: Path, form: VlmForm) -> ImageProcessor:
    """From the file of the whole processor (transformers 5), else from the image processor's own."""
    path = folder / PROCESSOR
    values = read_json(path).get("image_processor") if path.is_file() else None
    if values is None:
        path = folder / PREPROCESSOR
        values = read_json(path)
    with refusing(path, ValueError):
        return form.processor(ConfigReader(values, "image_processor"))


def _stop_ids(
    folder: Path, config: Mapping[str, Any], generation: Mapping[str, Any], vocabulary: int
) -> frozenset[int]:
    """Of generation_config.json, else of config.json."""
    path, found = folder / GENERATION, generation.get("eos_token_id")
    if found is None:
        path = folder / CONFIG
        text = config.get("text_config")
        places = (config, text) if isinstance(text, Mapping) else (config,)
        found = next((each["eos_token_id"] for each in places if each.get("eos_token_id") is not None), None)
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not ids:
        raise CheckpointError(f"{path}: eos_token_id: missing: no token would end an answer")
    for each in ids:
        if type(each) is not int or not 0 <= each < vocabulary:
            raise CheckpointError(f"{path}: eos_token_id: {shown(each)} is not a token of {vocabulary}")
    return frozenset(ids)
