"""Writes tests/checkpoints/vlm/data/KIND_VERSION: tiny random folders as one version of transformers saves them.

    PYTHONPATH=. python scripts/write_loader_fixtures/vlm_folders.py llava qwen2_5_vl

Run it in an environment of each version that is kept (tests/checkpoints/vlm/test_versions.py lists them; docs/vlm.md
says what differs), with the tokenizers and huggingface_hub of its time, torch, Pillow and safetensors. Configuration,
weights, image processor and tokenizer are saved by the library's own `save_pretrained`. reference.safetensors has what
the library makes of one image and one question: the prompt's ids, the greedy tokens and their scores.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

from tests.checkpoints.vlm import folders
from tests.checkpoints.vlm.versions import DATA, QUESTION, TOKENS, picture

LANGUAGE = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2}
LANGUAGE |= {"num_key_value_heads": 1}
TOWER = {"hidden_size": 16, "intermediate_size": 24}
IMAGE_PROCESSORS = {
    "smolvlm": "SmolVLMImageProcessor",
    "idefics3": "Idefics3ImageProcessor",
    "llava": "CLIPImageProcessor",
    "qwen2_5_vl": "Qwen2VLImageProcessor",
}
HAS_TEXT_CONFIG = (4, 57)  # of the versions that are kept, the first whose Qwen2.5-VL has one


def main() -> None:
    version = transformers.__version__
    for kind in sys.argv[1:]:
        path = DATA / f"{kind}_{version}"
        written = folders.write(kind, path, torch.bfloat16, values=configuration(kind))
        save_file(answered(kind, path, written.model), path / "reference.safetensors")
        print(f"{path.name}: {sum(file.stat().st_size for file in path.iterdir()) >> 10} KiB")


def configuration(kind: str) -> dict[str, Any]:
    """The configuration's keys, smaller than those of the other tests."""
    ids = {token: place for place, token in enumerate([*folders.SPECIAL[kind], *folders.TILES])}
    values = folders.CONFIGS[kind](ids)
    values["text_config"] |= LANGUAGE
    if kind != "qwen2_5_vl":
        values["vision_config"] |= TOWER | {"num_attention_heads": 2}
        return values
    values["video_token_id"] = folders.VOCABULARY - 1
    values["vision_config"] |= TOWER | {"out_hidden_size": LANGUAGE["hidden_size"], "num_heads": 2}
    text = values["text_config"]
    sections = text.pop("rope_parameters")["mrope_section"]
    text |= {"rope_theta": 5000.0, "rope_scaling": {"type": "mrope", "mrope_section": sections}}
    if tuple(int(part) for part in transformers.__version__.split(".")[:2]) < HAS_TEXT_CONFIG:
        del text["model_type"]
        return text | {key: value for key, value in values.items() if key != "text_config"}
    return values


def answered(kind: str, path: Path, model: Any) -> dict[str, torch.Tensor]:
    """The library's own ids, tokens and scores."""
    processor = image_processor(kind, path)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path / "tokenizer.json"),
        chat_template=folders.TEMPLATES[kind],
        bos_token="<s>" if "<s>" in folders.SPECIAL[kind] else None,
        eos_token=folders.STOP[kind],
    )
    for name in ("chat_template.jinja", "preprocessor_config.json"):
        (path / name).unlink()  # the version writes them, or puts their content elsewhere
    processor.save_pretrained(path)
    tokenizer.save_pretrained(path)
    is_tiled = kind in ("smolvlm", "idefics3")
    more = {"return_row_col_info": True} if is_tiled else {}
    image = [[picture(kind)]] if is_tiled else picture(kind)
    inputs = dict(processor(image, return_tensors="pt", **more))
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    text = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
    text = text.replace(folders.IMAGE[kind], image_text(kind, inputs, model))
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    arguments = {
        key: inputs[key] for key in ("pixel_values", "pixel_attention_mask", "image_grid_thw") if key in inputs
    }
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
            eos_token_id=None, pad_token_id=0, return_dict_in_generate=True, output_logits=True, **arguments,
        )  # fmt: skip
    tokens = out.sequences[0, -TOKENS:].clone()
    return {"ids": ids[0].contiguous(), "tokens": tokens, "scores": torch.cat(out.logits).float()}


def image_processor(kind: str, path: Path) -> Any:
    """The version's image processor that needs Pillow alone, with the settings of the folder."""
    name = IMAGE_PROCESSORS[kind]
    made = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
    return made.from_pretrained(path)


def image_text(kind: str, inputs: dict[str, Any], model: Any) -> str:
    """What stands for the image in the prompt."""
    if kind == "llava":
        vision = model.config.vision_config
        return "<image>" * (vision.image_size // vision.patch_size) ** 2
    if kind == "qwen2_5_vl":
        merge = model.config.vision_config.spatial_merge_size
        return "<|image_pad|>" * int(inputs["image_grid_thw"].prod() // merge**2)
    package = import_module(f"transformers.models.{kind}.processing_{kind}")
    rows, columns = inputs["rows"][0][0], inputs["cols"][0][0]
    vision = model.config.vision_config
    length = (vision.image_size // vision.patch_size // model.config.scale_factor) ** 2
    return str(
        package.get_image_prompt_string(
            rows, columns, length, "<fake_token_around_image>", "<image>", "<global-img>"
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
