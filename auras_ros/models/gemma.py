"""The Gemma decoder (Gemma Team 2024): Llama's with GeGLU, norms around one and scaled embeddings, by configuration.

There is no second decoder here: what Gemma shares with Llama it shares in code, cache and names of parameters. Later
generations (Gemma 2 and 3: soft caps, windows, norms after each part) are not this one.
"""

from __future__ import annotations

from auras_ros.models.llama import LlamaConfig


def gemma_config(
    vocabulary: int,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    hidden: int,
    head_dim: int,
    *,
    norm_eps: float = 1e-6,
    rope_theta: float = 10000.0,
) -> LlamaConfig:
    """Gemma's sizes; the head is the embedding, and head_dim is given because it is no share of the width. Raises
    ValueError, naming the size."""
    return LlamaConfig(
        vocabulary,
        width,
        layers,
        heads,
        kv_heads,
        hidden,
        head_dim,
        norm_eps,
        rope_theta,
        tied=True,
        activation="gelu_tanh",
        norm_offset=True,
        scaled_embedding=True,
    )
