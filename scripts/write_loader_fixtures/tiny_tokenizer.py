"""A tokenizer of a hundred tokens with the habits of Gemma's that matter: a token at the beginning, spaces as marks
that join what follows, digits each their own, line breaks their own."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>"]
CHARACTERS = "▁\n0123456789-.,;:_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
PICTURE = ("<fake_token_around_image>", "<global-img>")  # of SmolVLM2
MERGES = [("▁", "t"), ("▁", "a"), ("▁", "S"), ("t", "e"), ("i", "n"), ("▁S", "t")]


def tokenizer(begin: bool = True) -> Tokenizer:
    """begin: `<bos>` stands before every text, as PaliGemma's does and SmolVLM2's does not."""
    words = [*SPECIAL, *CHARACTERS, *("".join(pair) for pair in MERGES), *PICTURE]
    made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, MERGES, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    made.decoder = decoders.Replace("▁", " ")
    if begin:
        made.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    made.add_special_tokens([*SPECIAL, *PICTURE])
    return made


def pretrained(begin: bool = True) -> Any:
    """The same as transformers has it."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer(begin), pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>"
    )
