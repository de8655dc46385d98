"""A decoder of x-transformers can be captured and replayed: nothing reads a value back or leaves its device.

Guards: a keyword whose forward looks at a value, which a CUDA graph would refuse or freeze. Where there is no GPU,
"meta" tensors stand for one; the library's rotary and polar positions switch autocast off by the device's name, which
meta has not.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.models.x_decoder import XDecoder
from tests.models.test_x_decoder import CASES, PREFIX, SIZES, TOKENS, VOCABULARY
from tests.policies.test_capturable import OneDevice

pytest.importorskip("x_transformers")

ON_META = [
    name for name, (decoder, _) in CASES.items() if not any(key.startswith(("rotary", "polar")) for key in decoder)
]
ROWS, LENGTH = 2, PREFIX + 5


def built(name: str) -> XDecoder:
    decoder, wrapper = CASES[name]
    torch.manual_seed(0)
    return XDecoder(VOCABULARY, TOKENS, {**SIZES, **decoder}, wrapper, PREFIX).eval().requires_grad_(False)


@pytest.mark.parametrize("name", ON_META)
def test_it_stays_on_its_device(name: str) -> None:
    x = built(name).to("meta")
    store = x.make_cache(ROWS, LENGTH)
    positions = torch.empty(PREFIX, dtype=torch.int64, device="meta")
    with OneDevice("meta") as watch:
        hidden = x(torch.empty(ROWS, PREFIX, x.width, device="meta"), positions, store)
        ids = x.logits(hidden[:, -1:]).argmax(-1)
        x(x.embed(ids), positions[:1], store)
    assert watch.calls > 20


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_captured_refresh_replays_at_other_positions(name: str) -> None:
    """One graph: other embeddings, another place in the same store."""
    x = built(name).to("cuda")
    store, plain = x.make_cache(ROWS, LENGTH), x.make_cache(ROWS, LENGTH)
    whole = torch.randn(ROWS, LENGTH, x.width, device="cuda")
    static = [whole[:, :3].clone(), torch.arange(3, device="cuda")]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            x.logits(x(*static, store))
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = x.logits(x(*static, store))
    for start in (0, 3, 6, 3):
        static[0].copy_(whole[:, start : start + 3])
        static[1].copy_(torch.arange(start, start + 3))
        graph.replay()
        torch.testing.assert_close(out, x.logits(x(*static, plain)), rtol=1e-3, atol=1e-3)
