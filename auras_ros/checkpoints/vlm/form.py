"""What one type of folder is to the loader: its modules, its tensors' names, its images; and the keys that inference
ignores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.vlm.pictures import ImageProcessor
from auras_ros.checkpoints.vlm.sources import Part, TensorSource
from auras_ros.models.vlm import Vlm

# What transformers and training tools write into every configuration, and what only training or generation reads.
GENERAL = {
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "unsloth_fixed", "unsloth_version",
    "_flash_attn_2_enabled", "_name_or_path", "_pad_token_id", "architectures",
    "attention_dropout", "auto_map", "bos_token_id", "dtype", "eos_token_id", "id2label", "initializer_factor",
    "initializer_range", "label2id", "pad_token_id", "pretraining_tp", "problem_type", "return_dict",
    "output_attentions", "output_hidden_states", "torch_dtype", "transformers.js_config", "transformers_version",
    "use_cache", "use_reentrant_checkpointing", "neftune_noise_alpha", "unk_token_id",
    # PreTrainedConfig's own, until transformers 5
    "add_cross_attention", "bad_words_ids", "begin_suppress_tokens", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "is_decoder", "is_encoder_decoder", "length_penalty", "max_length", "min_length",
    "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "prefix",
    "pruned_heads", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "top_k", "top_p", "torchscript", "typical_p", "use_bfloat16",
}  # fmt: skip
HEAD, WORDS = "language.lm_head.weight", "language.embed_tokens.weight"
# Of an image processor's file: what it is called, and what has no effect on an image.
PROCESSOR = {
    "image_processor_type", "feature_extractor_type", "processor_class", "data_format", "input_data_format", "device",
    "_valid_processor_keys", "disable_grouping", "return_tensors", "do_pad", "pad_size", "default_to_square",
    "return_row_col_info",
}  # fmt: skip


def is_table(name: str) -> bool:
    """Whether a tensor is a table that is recomputed here, or a head: `open_vlm` looks at that of a tied model."""
    return name == HEAD or name.endswith(("rotary_emb.inv_freq", "position_ids"))


@dataclass(frozen=True)
class VlmForm:
    """sizes: the model's configuration. build: the module, with random weights. parts, source_of, is_ignored: see
    `sources.linked`. image_token: what stands for one embedding of an image in the prompt. processor: from
    preprocessor_config.json. length: tokens that the positions were trained for."""

    sizes: Any
    build: Callable[[], Vlm]
    parts: tuple[Part, ...]
    source_of: Callable[[str], TensorSource]
    processor: Callable[[ConfigReader], ImageProcessor]
    length: int
    image_token_id: int
    image_token: str = "<image>"
    is_ignored: Callable[[str], bool] = is_table

    @property
    def vocabulary(self) -> int:
        return int(self.sizes.language.vocabulary)


def tied(*reads: ConfigReader) -> bool:
    """Whether the head is the embedding: said by any of these."""
    said = [bool(read.only("tie_word_embeddings", False, True)) for read in reads]
    return any(said)
