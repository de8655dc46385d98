"""Checks by trial whether keywords of x-transformers make a causal decoder of embeddings; there is no list of keywords.

The library has more than a hundred keywords that can be combined. The pipeline needs three properties of them, and a
small twin of the decoder is tested for each: with random weights (zeros would hide a path), in double precision, in
evaluation mode. The twin is discarded; the decoder itself is never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Keywords = Mapping[str, Any]
Build = Callable[[int, int, Keywords, Keywords], nn.Module]  # (vocabulary, tokens, decoder's keywords, wrapper's)
Run = Callable[[nn.Module, Tensor, int], Tensor]  # (net, embeddings, prefix) -> hidden states

VOCABULARY, ROWS, LONGEST, PREFIX = 7, 2, 33, 3  # of the twin
# Tolerance, relative to the largest hidden state. Even in double the library computes its softmax in single precision;
# single is for decoders that it cannot run in double at all.
CLOSE = {torch.float64: 1e-5, torch.float32: 1e-3}
SEED = 0
# What a library raises for keywords and inputs that it does not support. A bug of ours may raise one of them as well:
# it would be refused with its text. A test constructs every decoder that must not be refused.
RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)


class KeywordError(ValueError):
    """Why these keywords do not make a causal decoder of embeddings."""


def refuse_unless_causal(
    build: Build, run: Run, tokens: int, prefix: int, decoder: Keywords, wrapper: Keywords
) -> None:
    """Raises ValueError, naming the first keyword whose removal is enough, or all keywords."""
    fault = _fault(build, run, tokens, prefix, decoder, wrapper)
    if fault is None:
        return
    for name in [*decoder, *wrapper]:
        others = [{key: value for key, value in keywords.items() if key != name} for keywords in (decoder, wrapper)]
        if _fault(build, run, tokens, prefix, others[0], others[1]) is None:
            value = {**decoder, **wrapper}[name]
            raise ValueError(f"x-transformers: keyword '{name}' ({value!r}): {fault}")
    raise ValueError(f"x-transformers: keywords {', '.join([*decoder, *wrapper])}: {fault}")


def _fault(build: Build, run: Run, tokens: int, prefix: int, decoder: Keywords, wrapper: Keywords) -> str | None:
    before = min(prefix, PREFIX)
    length = min(before + tokens, LONGEST)
    said: str | None = None
    for precision in CLOSE:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"), torch.no_grad():
            torch.default_generator.manual_seed(SEED)
            try:
                net = build(VOCABULARY, tokens, decoder, wrapper).to(precision).eval()
                for weight in net.parameters():  # away from its initial value, by about what its layer can take
                    weight.add_(torch.randn_like(weight) * (weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.1))
                _try(net, run, before, length)
                return None
            except KeywordError as fault:
                return str(fault)
            except RAISED as error:
                said = said or str(error).strip().split("\n")[0] or type(error).__name__
    return said


def _try(net: Any, run: Run, before: int, length: int) -> None:
    """Raises KeywordError, or whatever the library raises."""
    ids = torch.randint(VOCABULARY, (ROWS, length - before))
    prefix = torch.randn(ROWS, before, net.emb_dim).to(net.token_emb.emb.weight)
    whole = torch.cat([prefix, net.token_emb(ids)], 1)
    hidden = run(net, whole, before)
    expected = net(ids, prepend_embeds=prefix if before else None)
    if not isinstance(expected, Tensor) or hidden.dim() != 3 or hidden.shape[:2] != (ROWS, length):
        raise KeywordError("not one hidden state and one score of each token for each position")
    if not _close(run(net, whole, before), hidden):
        raise KeywordError("the hidden states of one forward are not those of the next")
    if net.to_logits is None or not _close(net.to_logits(hidden), expected):
        raise KeywordError("its scores do not follow from its hidden states, or these not from embeddings alone")
    for count in sorted({1, 2, 3, before + 1, length // 2, length - 1} & set(range(1, length))):
        if not _close(run(net, whole[:, :count], before), hidden[:, :count]):
            raise KeywordError("the hidden state of a position depends on what comes after it")
    if not _close(run(net, whole[:1], before), hidden[:1]):
        raise KeywordError("the hidden states of a row depend on the other rows of the batch")


def _close(one: Tensor, other: Tensor) -> bool:
    """Also False for NaN, and for other shapes."""
    return one.shape == other.shape and bool(((one - other).abs() <= CLOSE[one.dtype] * other.abs().max()).all())
