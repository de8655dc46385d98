"""Models that see and speak can be captured and replayed: nothing reads a value back or leaves its device.

Guards: an .item(), a branch on a value, an index made on the host, which a CUDA graph would refuse or freeze. Where
there is no GPU, "meta" tensors stand for one: they have no values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.models.action_tokens import ActionStatistics, ActionTokens, OpenVlaTokens, Rt2Tokens
from auras_ros.models.llama import Llama
from auras_ros.models.openvla import OpenVlaConfig, build_openvla
from auras_ros.models.presets import LLAMAS, OPENVLAS, RT2S
from auras_ros.models.rt2 import Rt2Config, build_rt2
from tests.models.decoding import greedy
from tests.policies.test_capturable import OneDevice

# Of the published widths, with few layers: one more runs as the one before it.
OPENVLA = OpenVlaConfig(
    replace(OPENVLAS["openvla-7b"].dinov2, depth=3),
    replace(OPENVLAS["openvla-7b"].siglip, depth=3),
    replace(OPENVLAS["openvla-7b"].language, layers=2),
)
RT2 = Rt2Config(replace(RT2S["llava-1.5-7b"].vision, depth=3), replace(RT2S["llava-1.5-7b"].language, layers=2))
STATISTICS = ActionStatistics((-0.5, 2.0, 0.0), (0.5, 6.0, 1.0), (True, True, False))


@torch.no_grad()
@pytest.mark.parametrize("name", ["openvla", "rt2"])
def test_perception_and_generation_stay_on_their_device(name: str) -> None:
    with torch.device("meta"):
        model = build_openvla(OPENVLA) if name == "openvla" else build_rt2(RT2)
        images = torch.empty(1, 6, 224, 224) if name == "openvla" else torch.empty(1, 3, 336, 336)
        ids, cache = torch.zeros(1, 12, dtype=torch.int64), model.language.make_cache(1, 700)
    with OneDevice("meta") as watch:
        seen = model.see(images)
        prefix = model.prefix(seen, ids[:, :1], ids[:, 1:])
        assert greedy(model.language, prefix, 7, cache).shape == (1, 7)
        model.language(prefix[:, :3], torch.empty(3, dtype=torch.int64, device="meta"), cache)
    assert watch.calls > 300


@pytest.mark.parametrize(
    "tokens", [OpenVlaTokens(STATISTICS), Rt2Tokens((0.0,) * 3, (1.0,) * 3)], ids=["openvla", "rt2"]
)
def test_action_tokens_stay_on_their_device(tokens: Any) -> None:
    moved: ActionTokens = tokens.to("meta")
    with OneDevice("meta"):
        ids = moved.encode(torch.empty(2, 3, device="meta"))
        assert moved.decode(ids).dtype == torch.float64


def refresh(model: Llama, given: list[Tensor], cache: Any) -> Tensor:
    embeddings, positions = given
    return model.logits(model(embeddings, positions, cache))


@pytest.mark.gpu
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_refresh_replays_at_other_positions(dtype: torch.dtype) -> None:
    """One graph for a span of tokens: other embeddings, another place in the same cache."""
    torch.manual_seed(0)
    model = Llama(LLAMAS["llama-small"]).to("cuda", dtype).eval()
    cache, plain = model.make_cache(1, 96), model.make_cache(1, 96)
    whole = torch.randn(1, 96, 768, device="cuda", dtype=dtype)
    static = [whole[:, :8].clone(), torch.arange(8, device="cuda")]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            refresh(model, static, cache)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = refresh(model, static, cache)
    for start in (0, 8, 16, 8):
        static[0].copy_(whole[:, start : start + 8])
        static[1].copy_(torch.arange(start, start + 8))
        graph.replay()
        torch.testing.assert_close(out, refresh(model, static, plain), rtol=2e-2, atol=2e-2)
