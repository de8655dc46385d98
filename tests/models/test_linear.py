"""Each form of a linear layer against torch's own, with and without a bias, for rows of every count.

Guards: a bias that is added twice or not; a weight whose blocks are read as if it stood plain; rounding that depends on
a neighbour's row, or overflows; a layer that is repacked though its weight is shared or small.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from auras_ros.models import linear
from auras_ros.models.linear import PACKED_FROM, Int8Linear, Linear, PackedLinear, SmallLinear, fastest, repack

ROWS = (1, 2, 7, 8, 33)
OUT, IN = 48, 96
FORMS = (Linear, PackedLinear, SmallLinear, Int8Linear)


def skip_unpacked(form: type[Any], dtype: torch.dtype) -> None:
    """oneDNN packs bfloat16 for the processors that multiply it; `fastest` packs it for no other."""
    if issubclass(form, PackedLinear) and dtype == torch.bfloat16 and not linear._packs_bfloat16():
        pytest.skip("this processor has neither AVX-512 nor AVX-NE-CONVERT")


def layer(dtype: torch.dtype, bias: bool, out: int = OUT, width: int = IN) -> nn.Linear:
    random = torch.Generator().manual_seed(0)
    made = nn.Linear(width, out, bias=bias).requires_grad_(False)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=random) / 8)
    return made.to(dtype)


def inputs(rows: int, dtype: torch.dtype, width: int = IN) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)).to(dtype)


def near(got: Tensor, wanted: Tensor, form: type[Any], dtype: torch.dtype, x: Tensor, weight: Tensor) -> None:
    assert got.dtype == dtype
    assert got.shape == wanted.shape
    if form is not Int8Linear:
        torch.testing.assert_close(got, wanted, **({} if dtype == torch.float32 else {"atol": 0.03, "rtol": 0.02}))
        return
    levels = 127 if torch.cpu._is_vnni_supported() else 63
    x, weight = x.float(), weight.float()
    # Half a step of each input, times the weights; half a step of each weight, times the inputs; and both.
    step, own = x.abs().amax(-1, keepdim=True) / levels / 2, weight.abs().amax(1) / 127 / 2
    most = step * weight.abs().sum(1) + x.abs().sum(-1, keepdim=True) * own + step * own * x.shape[-1]
    slack = 1e-5 if dtype == torch.float32 else 0.02 * wanted.float().abs().max()
    assert bool(((got.float() - wanted.float()).abs() <= most + slack).all())
    assert float((got.float() - wanted.float()).abs().mean()) < 0.02 * float(wanted.float().abs().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_torchs_linear(form: type[Any], bias: bool, dtype: torch.dtype) -> None:
    skip_unpacked(form, dtype)
    own = layer(dtype, bias)
    made = form(own.weight, own.bias)
    for rows in ROWS:
        x = inputs(rows, dtype)
        near(made(x), own(x), form, dtype, x, own.weight)
        strided = inputs(rows, dtype, 2 * IN)[:, ::2]
        near(made(strided), own(strided), form, dtype, strided, own.weight)
    deep = inputs(12, dtype).view(3, 4, IN)
    near(made(deep), own(deep), form, dtype, deep, own.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_a_residual_is_added_and_stays_as_it_was(form: type[Any], dtype: torch.dtype) -> None:
    skip_unpacked(form, dtype)
    own = layer(dtype, False)
    made = form(own.weight, None)
    for rows in ROWS:
        x, other = inputs(rows, dtype), inputs(rows, dtype, OUT)
        kept = other.clone()
        near(made.plus(x, other), own(x) + other, form, dtype, x, own.weight)
        assert torch.equal(other, kept)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_does_not_depend_on_the_others(form: type[Any]) -> None:
    """Nor on one that is much larger, or not finite; and what is not finite stays so."""
    own = layer(torch.float32, True)
    made, x = form(own.weight, own.bias), inputs(8, torch.float32)
    alone = made(x[:1])
    x[3] *= 1e6
    x[5] = torch.nan
    x[6, 0] = torch.inf
    got = made(x)
    torch.testing.assert_close(got[:1], alone)
    assert not bool(got[5].isfinite().any())
    assert not bool(got[6].isfinite().any())


def test_int8_does_not_overflow_and_knows_zeros() -> None:
    """Every product at its largest; and rows and outputs that are zero."""
    weight = torch.ones(4, 4096) * torch.tensor([[1.0], [-1.0], [0.0], [1e-30]])
    made = Int8Linear(weight, None)
    x = torch.stack([torch.ones(4096), -torch.ones(4096), torch.zeros(4096)])
    torch.testing.assert_close(made(x), x @ weight.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("packs_bfloat16", [True, False])
def test_the_fastest_form_is_by_size_and_type(monkeypatch: pytest.MonkeyPatch, packs_bfloat16: bool) -> None:
    if packs_bfloat16:
        skip_unpacked(PackedLinear, torch.bfloat16)
    monkeypatch.setattr(linear, "_packs_bfloat16", lambda: packs_bfloat16)
    side = int(PACKED_FROM**0.5) + 1
    large, small = torch.zeros(side, side), torch.zeros(8, 8)
    assert isinstance(fastest(large), PackedLinear)
    assert type(fastest(large.bfloat16())) is (PackedLinear if packs_bfloat16 else Linear)
    assert isinstance(fastest(large.double()), Linear)
    assert type(fastest(large)) is PackedLinear
    assert isinstance(fastest(small), SmallLinear)
    assert isinstance(fastest(small.double()), Linear)
    assert isinstance(fastest(large.to("meta")), Linear)


def test_a_small_weight_takes_the_form_for_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it takes, the product is the same; the other one must not be touched."""
    own = layer(torch.float32, False)
    made, x = SmallLinear(own.weight, None), inputs(8, torch.float32)
    wanted, residual = own(x), inputs(8, torch.float32, OUT)

    def check() -> None:
        torch.testing.assert_close(made(x), wanted)
        torch.testing.assert_close(made(x.view(2, 4, IN)), wanted.view(2, 4, OUT))
        torch.testing.assert_close(made.plus(x, residual), wanted + residual)

    monkeypatch.setattr(linear, "PACKED_WORK", 8 * IN * OUT + 1)
    with monkeypatch.context() as without:
        without.setattr(PackedLinear, "forward", None)
        without.setattr(PackedLinear, "plus", None)
        check()
    monkeypatch.setattr(linear, "PACKED_WORK", 8 * IN * OUT)
    made.plain.fill_(torch.nan)
    check()


def test_repacking_changes_linear_layers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(nn.Linear):
        pass

    monkeypatch.setattr(linear, "PACKED_FROM", 1000)
    model = nn.Sequential(nn.Linear(50, 30), nn.Sequential(nn.Linear(30, 40, bias=False), nn.Linear(40, 2)))
    model.append(Own(2, 600))
    model.append(nn.Conv1d(600, 2, 1))
    model.requires_grad_(False)
    x = torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    rest = (model[2], model[3])
    before = model[:3](x)
    repack(model)
    assert [type(each) for each in (model[0], *model[1])] == [PackedLinear, PackedLinear, SmallLinear]
    assert (model[2], model[3]) == rest
    torch.testing.assert_close(model[:3](x), before)
