"""Writes one model folder with random weights, as transformers saves it. Runs in the peers' environment:
`python write_model.py FOLDER SETTINGS`, SETTINGS being JSON; it imports nothing of this package and downloads nothing.

Every token of the tokenizer decodes to a text of its own that is not empty and plain ASCII: each token can be seen in a
stream as soon as it is made, and equal texts are equal tokens.
"""

from __future__ import annotations

import json
import math
import string
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

TEXT = "the tee is on its goal and the block must turn left: how many red things are in the way of the arm? user\n"
MERGES = 128
GAIN = 1.5
CONFIGS = {"qwen2_5_vl": "Qwen2_5_VLConfig", "llava": "LlavaConfig"}
MODELS = {"qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration", "llava": "LlavaForConditionalGeneration"}
# vLLM wants LLaVA's tower under the name that transformers gave it before version 5; both still load it.
RENAMED = {"vision_tower.": "vision_tower.vision_model.", "model.vision_tower.": "model.vision_tower.vision_model."}


def write(folder: Path, settings: dict[str, Any]) -> None:
    """settings: model_type, config, special, start, stop, template, processor, seed."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    ids = tokenizer(folder, settings["special"], settings["config"]["text_config"]["vocab_size"])
    kind, config = settings["model_type"], settings["config"]
    for key, token in settings["ids"].items():
        config[key] = ids[token]
    model = getattr(transformers, MODELS[kind])(getattr(transformers, CONFIGS[kind])(**config))
    randomise(model, settings["seed"], len(settings["special"]))
    model.tie_weights()
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    if kind == "llava":
        save_file(renamed(load_file(file)), file, {"format": "pt"})
    given = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": settings["stop"], "pad_token": settings["stop"]}
    if settings["start"]:
        given["bos_token"] = settings["start"]
    files = {
        "tokenizer_config.json": given | {"processor_class": settings["processor_class"]},
        "preprocessor_config.json": settings["processor"],
        "generation_config.json": {"eos_token_id": [ids[settings["stop"]]], "do_sample": False},
    }
    if settings["video_processor"]:  # never used; transformers' processor does not load without it
        files["video_preprocessor_config.json"] = settings["video_processor"]
    if settings["whole_processor"]:
        files["processor_config.json"] = settings["whole_processor"]
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(settings["template"], encoding="utf-8")


def randomise(model: torch.nn.Module, seed: int, special: int) -> None:
    """Layers that weigh more than the embeddings, so that an answer depends on the image and on every token of the
    prompt: with transformers' own values a tied model repeats one token, and equal answers would prove nothing. Norms
    are around one. The first rows of the head are those of the special tokens, which no answer has."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=random)
            if "norm" in name or "ln_" in name:
                parameter.copy_(0.05 * noise + float(not name.endswith("bias")))
            elif (
                parameter.dim() == 1
                or "class_embedding" in name
                or "embed_tokens" in name
                or "position_embedding" in name
            ):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(GAIN * noise / math.sqrt(parameter[0].numel()))
        head = model.get_output_embeddings().weight  # type: ignore[operator]
        head[:special] = 0.0


def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    made = {}
    for name, tensor in tensors.items():
        old = next((each for each in RENAMED if name.startswith(each) and not name.startswith(RENAMED[each])), "")
        made[RENAMED[old] + name.removeprefix(old) if old else name] = tensor
    return made


def tokenizer(folder: Path, special: list[str], vocabulary: int) -> dict[str, int]:
    """Writes tokenizer.json, a byte-level BPE of exactly `vocabulary` tokens; returns the ids of the special ones."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    alphabet = [*string.ascii_letters, *string.digits, *string.punctuation, "Ġ", "Ċ"]  # of ASCII alone
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=len(special) + len(alphabet) + MERGES, special_tokens=special, initial_alphabet=alphabet
    )
    trained.train_from_iterator([TEXT] * 4, trainer)
    learnt = json.loads(trained.to_str())["model"]
    words: dict[str, int] = learnt["vocab"]
    for number in range(vocabulary - len(words)):  # decoded, as the model writes any token, but in no prompt
        words[f"Ġx{number}"] = len(words)
    made = Tokenizer(models.BPE(vocab=words, merges=[tuple(pair) for pair in learnt["merges"]]))
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    ids = {token: words[token] for token in special}
    made.save(str(folder / "tokenizer.json"))
    return ids


if __name__ == "__main__":
    write(Path(sys.argv[1]), json.loads(sys.argv[2]))
