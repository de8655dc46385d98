"""`config.json` of published folders: what is left out has the published value, what is not built is refused by key.

Guards: a default that differs from the published one; a setting that changes the arithmetic and is passed over.
"""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.checkpoints.config_reader import ConfigReader, ModelConfigError
from auras_ros.checkpoints.hf_config import llama_config, openvla_config
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.presets import LLAMAS, OPENVLAS
from auras_ros.models.rotary import RopeScaling
from tests.models import published

OPENVLA: dict[str, Any] = {
    "model_type": "openvla",
    "use_fused_vision_backbone": True,
    "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
    "timm_override_act_layers": [None, None],
    "image_sizes": [224, 224],
    "pad_to_multiple_of": 64,
    "n_action_bins": 256,
    "text_config": {"model_type": "llama", "pad_token_id": 32000, "torch_dtype": "bfloat16", "vocab_size": 32064},
}


def llama(values: dict[str, Any]) -> LlamaConfig:
    return llama_config(ConfigReader(values, "config"))


def test_the_published_folder_is_the_preset() -> None:
    assert openvla_config(OPENVLA) == OPENVLAS["openvla-7b"]


def test_what_is_left_out_is_what_transformers_takes() -> None:
    transformers = pytest.importorskip("transformers")
    full = transformers.LlamaConfig().to_dict()
    assert llama({}) == llama(full)


@pytest.mark.parametrize("name", LLAMAS)
def test_every_llama_preset_comes_back_from_its_config(name: str) -> None:
    assert llama(published.llama_values(LLAMAS[name])) == LLAMAS[name]


def test_heads_of_another_width_than_their_share_are_kept() -> None:
    assert llama({"head_dim": 96}).size_of_head == 96
    assert llama({"head_dim": 128}) == llama({})


def test_both_ways_to_write_llama3_scaling() -> None:
    values = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    old = llama({"rope_theta": 500000.0, "rope_scaling": values})
    new = llama({"rope_parameters": values | {"rope_theta": 500000.0}})
    assert old == new
    assert (new.rope_theta, new.rope_scaling) == (500000.0, RopeScaling(8.0, 1.0, 4.0, 8192))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "mistral"}, "config.model_type: 'mistral' is not supported; expected 'llama'"),
        ({"hidden_act": "gelu"}, "config.hidden_act: 'gelu' is not supported"),
        ({"attention_bias": True}, "config.attention_bias: True is not supported; expected False"),
        ({"mlp_bias": True}, "config.mlp_bias: True"),
        ({"tie_word_embeddings": 1}, "config.tie_word_embeddings: 1 is not supported"),
        ({"num_hidden_layers": "32"}, "config.num_hidden_layers: '32' is not a whole number"),
        ({"num_hidden_layers": True}, "config.num_hidden_layers: True is not a whole number"),
        ({"rms_norm_eps": "small"}, "config.rms_norm_eps: 'small' is not a number"),
        ({"rms_norm_eps": float("nan")}, "config.rms_norm_eps: is not a number from 0 to 1e\\+12"),
        ({"rms_norm_eps": -1e-6}, "config.rms_norm_eps: is not a number from 0"),
        ({"rope_theta": 0}, "config.rope_theta: is not a number from 1 to"),
        ({"rope_theta": 10**400}, "config.rope_theta: is not a number from 1 to"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "config.rope_scaling.type: 'linear' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "config.rope_scaling.low_freq_factor: None is not"),
        ({"rope_parameters": 5}, "config.rope_parameters: is not a mapping"),
    ],
)
def test_a_llama_that_is_not_built_is_refused_by_key(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelConfigError, match=said):
        llama(values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "llava"}, "config.model_type: 'llava' is not supported; expected 'openvla', 'prismatic'"),
        ({"use_fused_vision_backbone": False}, "config.use_fused_vision_backbone: False"),
        ({"timm_model_ids": ["vit_base", "vit_so400m_patch14_siglip_224"]}, "timm_model_ids: 'vit_base' is not known"),
        ({"timm_model_ids": None}, "config.timm_model_ids: None is not a list of two names"),
        ({"timm_model_ids": 7}, "config.timm_model_ids: 7 is not a list of two names"),
        ({"timm_model_ids": [["vit"], 3]}, "config.timm_model_ids: .* is not a list of two names"),
        ({"image_sizes": 224}, "config.image_sizes: 224 is not a list of two whole numbers"),
        ({"image_sizes": [224, "224"]}, "config.image_sizes: .* is not a list of two whole numbers"),
        ({"timm_override_act_layers": 5}, "timm_override_act_layers: 5 is not supported"),
        ({"text_config": {}}, "config.text_config.model_type: missing"),
        ({"text_config": {"model_type": "llama"}}, "config.text_config.vocab_size: missing"),
        ({"text_config": None}, "config.text_config: is not a mapping"),
        ({"timm_override_act_layers": ["quick_gelu", None]}, "timm_override_act_layers: .* is not supported"),
        ({"text_config": {"model_type": "phi"}}, "config.text_config.model_type: 'phi'"),
    ],
)
def test_an_openvla_that_is_not_built_is_refused_by_key(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelConfigError, match=said):
        openvla_config(OPENVLA | values)
