"""Reads published folders of vision-language models: weights, tokenizer, chat template, image processor."""
