"""The Gemma decoder (Gemma Team 2024): Llama's with GeGLU, norms around one and scaled embeddings, by configuration.

There is no second decoder here: Gemma uses Llama's code, cache and parameter names. Later generations (Gemma 2 and 3:
soft caps, windows, norms after each part) are not supported.
"""

from __future__ import annotations

from functools import partial

from auras_ros.models.llama import LlamaConfig

# The head is the embedding. head_dim must be given, because it is not width / heads.
gemma_config = partial(LlamaConfig, tied=True, activation="gelu_tanh", norm_offset=True, scaled_embedding=True)
