"""The Gemma decoder (Gemma Team 2024): Llama's with GeGLU, norms around one and scaled embeddings, by configuration.

There is no second decoder here: what Gemma shares with Llama it shares in code, cache and names of parameters. Later
generations (Gemma 2 and 3: soft caps, windows, norms after each part) are not this one.
"""

from __future__ import annotations

from functools import partial

from auras_ros.models.llama import LlamaConfig

# The head is the embedding, and head_dim is to be given because it is no share of the width.
gemma_config = partial(LlamaConfig, tied=True, activation="gelu_tanh", norm_offset=True, scaled_embedding=True)
