"""Opens a published folder of a vision-language model: everything in it is checked before memory is spent.

Files that are read: config.json, generation_config.json, the image processor's (preprocessor_config.json, or within
processor_config.json), tokenizer.json, tokenizer_config.json, the chat template, and safetensors. Nothing of the folder
is executed but its chat template, in a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.dtype import runtime_dtype, stored_dtype
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import digest
from auras_ros.checkpoints.json_file import read_json
from auras_ros.checkpoints.limits import check_sizes, shown
from auras_ros.checkpoints.shards import Shards
from auras_ros.checkpoints.tensors import fill
from auras_ros.checkpoints.vlm import cogagent, idefics3, llava, qwen_vl
from auras_ros.checkpoints.vlm.chat import VlmPrompts
from auras_ros.checkpoints.vlm.form import VlmForm
from auras_ros.checkpoints.vlm.pictures import ImageProcessor
from auras_ros.checkpoints.vlm.sources import SourcedTensors, linked
from auras_ros.models.vlm import Vlm

CONFIG, GENERATION = "config.json", "generation_config.json"
PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
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
    the weights in the file."""

    name: str
    digest: str
    model: Vlm
    prompts: VlmPrompts
    stop_ids: frozenset[int]
    length: int
    stored: torch.dtype


def open_vlm(folder: Path, dtype: str = "auto", device: str = "cpu") -> VlmCheckpoint:
    """A model folder, its weights on the CPU in the type that `runtime_dtype` gives. Raises CheckpointError, naming the
    file and the key or tensor."""
    path = folder / CONFIG
    values = read_json(path)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FORMS:
        raise CheckpointError(f"{path}: model_type: {shown(kind)} is not known; known: {', '.join(sorted(FORMS))}")
    with refusing(path, ValueError):
        form = FORMS[kind](ConfigReader(values, "config"))
        check_sizes("config", "", asdict(form.sizes), 0)
        with torch.device("meta"):
            model = form.build()
    prompts = VlmPrompts(
        folder, _processor(folder, form), form.image_token, form.image_token_id, form.length, form.vocabulary
    )
    stop_ids = _stop_ids(folder, values, form.vocabulary)
    tensors = linked(list(model.state_dict()), Shards(folder), form.parts, form.source_of, form.is_ignored)
    _check_numbers(folder, tensors, model)
    stored = stored_dtype(tensors)
    model = model.to(runtime_dtype(dtype, device, stored)).to_empty(device="cpu")
    fill(model, tensors, folder, {name: tensors.origin(name) for name in tensors})
    return VlmCheckpoint(
        name=folder.resolve().name,
        digest=digest(folder),
        model=model.eval().requires_grad_(False),
        prompts=prompts,
        stop_ids=stop_ids,
        length=form.length,
        stored=stored,
    )


def _check_numbers(folder: Path, tensors: SourcedTensors, model: Vlm) -> None:
    """Before memory is spent: a small file cannot fill a large model."""
    given = sum(numbers for _, numbers in tensors.kinds())
    needed = sum(parameter.numel() for parameter in model.parameters())
    if needed > 2 * given:
        raise CheckpointError(f"{folder}: the tensors have {given:,} numbers, but the model of {CONFIG} has {needed:,}")


def _processor(folder: Path, form: VlmForm) -> ImageProcessor:
    """From the image processor's own file, or from the one of the whole processor (transformers 5)."""
    path, key = folder / PREPROCESSOR, ""
    values: Any = read_json(path) if path.is_file() else None
    if values is None:
        path, key = folder / PROCESSOR, ".image_processor"
        values = read_json(path).get("image_processor")
    with refusing(path, ValueError):
        return form.processor(ConfigReader(values, f"preprocessor{key}"))


def _stop_ids(folder: Path, config: Mapping[str, Any], vocabulary: int) -> frozenset[int]:
    """Of generation_config.json, else of config.json."""
    path, found = folder / GENERATION, None
    if path.is_file():
        found = read_json(path).get("eos_token_id")
    if found is None:
        path = folder / CONFIG
        text = config.get("text_config")
        found = config.get("eos_token_id", text.get("eos_token_id") if isinstance(text, Mapping) else None)
    ids = found if isinstance(found, list) else [] if found is None else [found]
    if not ids:
        raise CheckpointError(f"{path}: eos_token_id: missing: no token would end an answer")
    for each in ids:
        if type(each) is not int or not 0 <= each < vocabulary:
            raise CheckpointError(f"{path}: eos_token_id: {shown(each)} is not a token of {vocabulary}")
    return frozenset(ids)
