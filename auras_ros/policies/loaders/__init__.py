"""Translators: a folder of another library becomes our manifest and our tensors by our names.

From there everything is what our own checkpoints do (`policies.checkpoint`). Nothing in here executes anything from a
folder, and what a folder says that we do not do is refused by name.
"""
