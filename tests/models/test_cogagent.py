"""CogAgent's form against a naive reference written from its description, and its decoder against transformers' GLM-4.

Guards: keys of one layer read by another; a token that sees an image which begins after it; a text that is changed by
cross-attention though there is no image; the rotation of neighbours taken for one of halves.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.models.cogagent import CogAgent
from auras_ros.models.presets import COGAGENT_9B
from tests.checkpoints.vlm.decoding import greedy_logits
from tests.checkpoints.vlm.folders import image, write
from tests.models.published import randomise

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
pytest.importorskip("PIL")
TOKENS = 8


def folder(path: Path) -> tuple[Path, dict[str, Any], dict[str, Tensor]]:
    """A folder with random tensors under the names that docs/vlm.md gives, and its configuration."""
    write("cogagent", path)
    config = json.loads((path / "config.json").read_text())
    vision, text = config["vision_config"], config["text_config"]
    width, features, head = text["hidden_size"], vision["hidden_size"], text["head_dim"]
    hidden, cross, adapter = text["intermediate_size"], config["cross_hidden_size"], config["adapter_hidden_size"]
    heads, kv = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    shapes: dict[str, tuple[int, ...]] = {
        "vision.cls_token": (1, 1, features),
        "vision.pos_embed": (1, patches + 1, features),
        "vision.patch_embed.proj.weight": (features, 3, vision["patch_size"], vision["patch_size"]),
        "vision.patch_embed.proj.bias": (features,),
        "adapter.conv.weight": (width, features, 2, 2),
        "adapter.conv.bias": (width,),
        "adapter.linear_proj.weight": (width, width),
        "adapter.norm1.weight": (width,),
        "adapter.norm1.bias": (width,),
        "adapter.gate_proj.weight": (adapter, width),
        "adapter.dense_h_to_4h.weight": (adapter, width),
        "adapter.dense_4h_to_h.weight": (width, adapter),
        "adapter.boi": (1, 1, width),
        "adapter.eoi": (1, 1, width),
        "model.embed_tokens.weight": (text["vocab_size"], width),
        "model.norm.weight": (width,),
        "lm_head.weight": (text["vocab_size"], width),
    }
    for i in range(vision["num_hidden_layers"]):
        layer = {"attn.qkv": (3 * features, features), "attn.proj": (features, features)}
        layer |= {
            "mlp.fc1": (vision["intermediate_size"], features),
            "mlp.fc2": (features, vision["intermediate_size"]),
        }
        for name, shape in layer.items():
            shapes |= {f"vision.layers.{i}.{name}.weight": shape, f"vision.layers.{i}.{name}.bias": shape[:1]}
        for name in ("norm1", "norm2"):
            shapes |= {f"vision.layers.{i}.{name}.{kind}": (features,) for kind in ("weight", "bias")}
    for i in range(text["num_hidden_layers"]):
        at = f"model.layers.{i}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (heads, width), f"{at}.self_attn.q_proj.bias": (heads,),
            f"{at}.self_attn.k_proj.weight": (kv, width), f"{at}.self_attn.k_proj.bias": (kv,),
            f"{at}.self_attn.v_proj.weight": (kv, width), f"{at}.self_attn.v_proj.bias": (kv,),
            f"{at}.self_attn.o_proj.weight": (width, heads), f"{at}.mlp.gate_up_proj.weight": (2 * hidden, width),
            f"{at}.mlp.down_proj.weight": (width, hidden), f"{at}.input_layernorm.weight": (width,),
            f"{at}.post_attention_layernorm.weight": (width,), f"{at}.post_cross_attention_layernorm.weight": (width,),
            f"{at}.cross_attn.q_proj.weight": (cross, width), f"{at}.cross_attn.k_proj.weight": (cross, features),
            f"{at}.cross_attn.v_proj.weight": (cross, features), f"{at}.cross_attn.o_proj.weight": (width, cross),
        }  # fmt: skip
    random = torch.Generator().manual_seed(7)
    tensors = {
        name: float("norm" in name and name.endswith("weight")) + 0.15 * torch.randn(shape, generator=random)
        for name, shape in shapes.items()
    }
    save_file(tensors, path / "model.safetensors")
    return path, config, tensors


def asked(checkpoint: VlmCheckpoint, images: int) -> Any:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "how many"}]
    parts += [{"type": "image"} for _ in range(images)] + [{"type": "text", "text": "in the way?"}]
    return checkpoint.prompts.plain(
        "USER: " + "".join("<image> and " if part["type"] == "image" else part["text"] for part in parts),
        [image(40, 56, seed) for seed in range(images)],
    )


def naive(
    config: dict[str, Any], w: dict[str, Tensor], ids: list[int], at: list[int], pictures: list[Tensor]
) -> Tensor:
    """The scores of the token after `ids`: loops over heads and tokens, no cache, straight from the description."""
    patches = [_eva(config["vision_config"], w, picture) for picture in pictures]
    x = w["model.embed_tokens.weight"][ids].clone()
    starts, place = [], 0
    for each in patches:
        tokens = _adapter(w, each)
        starts.append(at[place])
        for token in tokens:
            x[at[place]] = token
            place += 1
    text = config["text_config"]
    for i in range(text["num_hidden_layers"]):
        at_layer = f"model.layers.{i}."
        x = x + _self_attention(text, w, at_layer, _rms(x, w[at_layer + "input_layernorm.weight"], text))
        query = _rms(x, w[at_layer + "post_cross_attention_layernorm.weight"], text)
        x = x + _cross_attention(config, w, at_layer, query, patches, starts)
        hidden = _rms(x, w[at_layer + "post_attention_layernorm.weight"], text)
        gate, up = (hidden @ w[at_layer + "mlp.gate_up_proj.weight"].T).chunk(2, -1)
        x = x + (F.silu(gate) * up) @ w[at_layer + "mlp.down_proj.weight"].T
    return _rms(x, w["model.norm.weight"], text)[-1] @ w["lm_head.weight"].T


def _rms(x: Tensor, weight: Tensor, text: dict[str, Any]) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + text.get("rms_norm_eps", 1.5625e-7)) * weight


def _eva(vision: dict[str, Any], w: dict[str, Tensor], picture: Tensor) -> Tensor:
    px, heads = vision["patch_size"], vision["num_attention_heads"]
    kernel, bias = w["vision.patch_embed.proj.weight"].flatten(1), w["vision.patch_embed.proj.bias"]
    cut = [
        kernel @ picture[:, y : y + px, x : x + px].flatten() + bias
        for y in range(0, vision["image_size"], px)
        for x in range(0, vision["image_size"], px)
    ]
    x = torch.stack([w["vision.cls_token"][0, 0], *cut]) + w["vision.pos_embed"][0]
    for i in range(vision["num_hidden_layers"]):
        at = f"vision.layers.{i}."

        def norm(y: Tensor, name: str, at: str = at) -> Tensor:
            return F.layer_norm(y, y.shape[-1:], w[f"{at}{name}.weight"], w[f"{at}{name}.bias"], 1e-6)

        query, key, value = (x @ w[at + "attn.qkv.weight"].T + w[at + "attn.qkv.bias"]).chunk(3, -1)
        size = x.shape[-1] // heads
        seen = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            seen.append(torch.softmax(query[:, part] @ key[:, part].T / math.sqrt(size), -1) @ value[:, part])
        attended = torch.cat(seen, -1) @ w[at + "attn.proj.weight"].T + w[at + "attn.proj.bias"]
        x = x + norm(attended, "norm1")
        inner = F.gelu(x @ w[at + "mlp.fc1.weight"].T + w[at + "mlp.fc1.bias"])
        x = x + norm(inner @ w[at + "mlp.fc2.weight"].T + w[at + "mlp.fc2.bias"], "norm2")
    return x[1:]


def _adapter(w: dict[str, Tensor], patches: Tensor) -> list[Tensor]:
    side = int(len(patches) ** 0.5)
    square = patches.reshape(side, side, -1)
    made = []
    for y in range(0, side, 2):
        for x in range(0, side, 2):
            corner = square[y : y + 2, x : x + 2].permute(2, 0, 1)
            joined = (w["adapter.conv.weight"] * corner).sum((1, 2, 3)) + w["adapter.conv.bias"]
            joined = w["adapter.linear_proj.weight"] @ joined
            joined = F.gelu(F.layer_norm(joined, joined.shape, w["adapter.norm1.weight"], w["adapter.norm1.bias"]))
            gated = F.silu(w["adapter.gate_proj.weight"] @ joined) * (w["adapter.dense_h_to_4h.weight"] @ joined)
            made.append(w["adapter.dense_4h_to_h.weight"] @ gated)
    return [w["adapter.boi"][0, 0], *made, w["adapter.eoi"][0, 0]]


def _turned(vector: Tensor, position: int, text: dict[str, Any]) -> Tensor:
    """Neighbours (2 i, 2 i + 1) of the first half of a head, rotated."""
    rotated, made = int(len(vector) * text["partial_rotary_factor"]), vector.clone()
    for i in range(0, rotated, 2):
        angle = position / text["rope_theta"] ** (i / rotated)
        made[i] = vector[i] * math.cos(angle) - vector[i + 1] * math.sin(angle)
        made[i + 1] = vector[i + 1] * math.cos(angle) + vector[i] * math.sin(angle)
    return made


def _self_attention(text: dict[str, Any], w: dict[str, Tensor], at: str, x: Tensor) -> Tensor:
    size, heads, groups = text["head_dim"], text["num_attention_heads"], text["num_key_value_heads"]
    query, key, value = (
        x @ w[f"{at}self_attn.{each}_proj.weight"].T + w[f"{at}self_attn.{each}_proj.bias"] for each in "qkv"
    )
    out = torch.zeros(len(x), heads * size)
    for head in range(heads):
        own, shared = slice(head * size, (head + 1) * size), head // (heads // groups)
        part = slice(shared * size, (shared + 1) * size)
        keys = torch.stack([_turned(each, t, text) for t, each in enumerate(key[:, part])])
        for t in range(len(x)):
            scores = keys[: t + 1] @ _turned(query[t, own], t, text) / math.sqrt(size)
            out[t, own] = torch.softmax(scores, 0) @ value[: t + 1, part]
    return out @ w[at + "self_attn.o_proj.weight"].T


def _cross_attention(
    config: dict[str, Any], w: dict[str, Tensor], at: str, x: Tensor, patches: list[Tensor], starts: list[int]
) -> Tensor:
    heads, width = config["cross_num_attention_heads"], config["cross_hidden_size"]
    size, out = width // heads, torch.zeros(len(x), width)
    for t in range(len(x)):
        seen = [each for each, start in zip(patches, starts, strict=True) if start <= t]
        if not seen:
            continue
        memory = torch.cat(seen)
        query = w[at + "cross_attn.q_proj.weight"] @ x[t]
        key, value = (memory @ w[f"{at}cross_attn.{each}_proj.weight"].T for each in "kv")
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            out[t, part] = torch.softmax(key[:, part] @ query[part] / math.sqrt(size), 0) @ value[:, part]
    return out @ w[at + "cross_attn.o_proj.weight"].T


@pytest.mark.parametrize("images", [0, 1, 2])
def test_tokens_are_those_of_the_naive_reference(images: int, tmp_path: Path) -> None:
    path, config, tensors = folder(tmp_path)
    checkpoint = open_vlm(path)
    prompt = asked(checkpoint, images)
    tokens, scores = greedy_logits(checkpoint.model, prompt, TOKENS)
    ids, pictures = prompt.ids.tolist(), [picture.pixels[0] for picture in prompt.images]
    for token, given in zip(tokens, scores, strict=True):
        wanted = naive(config, tensors, ids, prompt.at.tolist(), pictures)
        torch.testing.assert_close(given, wanted, atol=2e-4, rtol=1e-4)
        assert int(wanted.argmax()) == token
        ids.append(token)


def test_the_decoder_is_transformers_glm_where_there_is_no_image(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path, config, _ = folder(tmp_path)
    values = {key: value for key, value in config["text_config"].items() if key not in ("model_type", "rope_theta")}
    rope = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": values.pop("partial_rotary_factor")}
    ids = {"pad_token_id": 0, "eos_token_id": 1}
    made = randomise(transformers.GlmForCausalLM(transformers.GlmConfig(**values, **ids, rope_parameters=rope)), 3)
    tensors = load_file(path / "model.safetensors")
    given = {name: tensor.contiguous() for name, tensor in made.state_dict().items()}
    assert given.keys() <= tensors.keys()
    save_file(tensors | given, path / "model.safetensors")
    checkpoint = open_vlm(path)
    prompt = asked(checkpoint, 0)
    wanted = made.generate(
        prompt.ids[None], attention_mask=torch.ones(1, len(prompt.ids)), max_new_tokens=TOKENS, do_sample=False,
        eos_token_id=None,
    )  # fmt: skip
    assert greedy_logits(checkpoint.model, prompt, TOKENS)[0] == wanted[0, len(prompt.ids) :].tolist()


def test_an_image_is_seen_both_ways(tmp_path: Path) -> None:
    """Another picture changes what the token after it is scored, through the sequence alone and through
    cross-attention alone."""
    path, _, tensors = folder(tmp_path)
    for without in ("cross_attn.o_proj", "adapter.dense_4h_to_h"):
        save_file(
            {name: 0 * value if without in name else value for name, value in tensors.items()},
            path / "model.safetensors",
        )
        checkpoint = open_vlm(path)
        assert isinstance(checkpoint.model, CogAgent)
        pair = [checkpoint.prompts.plain("USER: <image> left?", [image(32, 32, seed)]) for seed in (0, 1)]
        one, other = (greedy_logits(checkpoint.model, prompt, 1)[1] for prompt in pair)
        assert float((one - other).abs().max()) > 1e-3


def test_the_preset_has_the_sizes_of_nova() -> None:
    """Table II and section V: a vision encoder of 64 layers and 4 B parameters, a decoder of 40 layers and 9 B."""
    with torch.device("meta"):
        made = CogAgent(COGAGENT_9B)
    tower = sum(each.numel() for each in made.vision.parameters())
    decoder = sum(each.numel() for name, each in made.language.named_parameters() if "cross_attn" not in name)
    assert (len(made.vision.layers), len(made.language.layers)) == (64, 40)
    assert 4.0e9 < tower < 4.5e9
    assert 9.0e9 < decoder < 9.5e9
