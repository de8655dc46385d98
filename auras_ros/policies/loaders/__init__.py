"""Translators: a folder of another library becomes our manifest and our tensors by our names.

From there on it is handled like our own checkpoints (`policies.checkpoint`). Nothing in here executes anything from a
folder, and settings that are not supported are refused by name.
"""
