"""The published U-Net: its names, its FiLM block against the sums written out, its graph against a second one.

Guards: scale and shift swapped; a skip from the wrong scale; a kernel or padding that published weights do not fit.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.models.conditional_unet1d import DiffusionUnet1d, FilmResidualBlock, UnetSizes

CONDITION, GROUPS, STEP = 6, 4, 8


def tiny() -> DiffusionUnet1d:
    torch.manual_seed(0)
    return DiffusionUnet1d(2, CONDITION, UnetSizes((8, 12, 16), kernel=5, groups=GROUPS, step_width=STEP)).eval()


def inputs(rows: int, horizon: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows)
    actions = torch.randn(rows, horizon, 2, generator=random)
    return actions, torch.arange(rows) * 30 + 1, torch.randn(rows, CONDITION, generator=random)


def mish(value: float) -> float:
    return value * math.tanh(math.log1p(math.exp(value)))


def naive_conv_block(w: dict[str, Tensor], name: str, x: list[list[float]], groups: int) -> list[list[float]]:
    """Convolution along time, group normalisation, Mish; x[channel][time], each sum written out."""
    weight, bias = w[f"{name}.block.0.weight"].tolist(), w[f"{name}.block.0.bias"].tolist()
    gain, offset = w[f"{name}.block.1.weight"].tolist(), w[f"{name}.block.1.bias"].tolist()
    time, kernel = len(x[0]), len(weight[0][0])
    out = [[b] * time for b in bias]
    for o, row in enumerate(weight):
        for i, taps in enumerate(row):
            for t in range(time):
                for k in range(kernel):
                    at = t + k - kernel // 2
                    if 0 <= at < time:
                        out[o][t] += taps[k] * x[i][at]
    size = len(out) // groups
    for g in range(groups):
        values = [v for c in range(g * size, (g + 1) * size) for v in out[c]]
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) + 1e-5)
        for c in range(g * size, (g + 1) * size):
            out[c] = [mish((v - mean) / spread * gain[c] + offset[c]) for v in out[c]]
    return out


@torch.no_grad()
@pytest.mark.parametrize("inputs_", [4, 3])
def test_film_block_equals_the_sums_written_out(inputs_: int) -> None:
    torch.manual_seed(1)
    block = FilmResidualBlock(inputs_, 4, 3, kernel=3, groups=2).double()
    x, condition = torch.randn(inputs_, 5).double(), torch.randn(3).double()
    w = dict(block.named_parameters())
    film, bias = w["cond_encoder.1.weight"].tolist(), w["cond_encoder.1.bias"].tolist()
    told = [mish(v) for v in condition.tolist()]
    film = [b + sum(c * v for c, v in zip(row, told, strict=True)) for row, b in zip(film, bias, strict=True)]
    hidden = naive_conv_block(w, "blocks.0", x.tolist(), 2)
    hidden = [[film[c] * v + film[4 + c] for v in row] for c, row in enumerate(hidden)]
    expected = torch.tensor(naive_conv_block(w, "blocks.1", hidden, 2)).double()
    shortcut = x if inputs_ == 4 else w["residual_conv.weight"][:, :, 0] @ x + w["residual_conv.bias"][:, None]
    torch.testing.assert_close(block(x[None], condition[None])[0], expected + shortcut, rtol=1e-5, atol=1e-6)


def naive_unet(w: dict[str, Tensor], x: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
    """The published graph, written from the parameters' names."""

    def linear(name: str, v: Tensor) -> Tensor:
        return F.linear(v, w[f"{name}.weight"], w[f"{name}.bias"])

    def conv(name: str, v: Tensor, **how: int) -> Tensor:
        return F.conv1d(v, w[f"{name}.weight"], w[f"{name}.bias"], **how)

    def conv_block(name: str, v: Tensor) -> Tensor:
        out = conv(f"{name}.block.0", v, padding=2)
        return F.mish(F.group_norm(out, GROUPS, w[f"{name}.block.1.weight"], w[f"{name}.block.1.bias"]))

    def block(name: str, v: Tensor) -> Tensor:
        told = linear(f"{name}.cond_encoder.1", F.mish(film))
        half = told.shape[1] // 2
        out = conv_block(f"{name}.blocks.0", v) * told[:, :half, None] + told[:, half:, None]
        same = f"{name}.residual_conv.weight" not in w
        return conv_block(f"{name}.blocks.1", out) + (v if same else conv(f"{name}.residual_conv", v))

    frequency = 10_000.0 ** (-torch.arange(STEP // 2, dtype=x.dtype) / (STEP // 2 - 1))
    angle = timestep[:, None] * frequency
    step = linear("diffusion_step_encoder.1", torch.cat([angle.sin(), angle.cos()], 1))
    film = torch.cat([linear("diffusion_step_encoder.3", F.mish(step)), condition], 1)

    def pair(name: str, v: Tensor) -> Tensor:
        return block(f"{name}.1", block(f"{name}.0", v))

    v0 = pair("down_modules.0", x.transpose(1, 2))
    v1 = pair("down_modules.1", conv("down_modules.0.2.conv", v0, stride=2, padding=1))
    v2 = pair("down_modules.2", conv("down_modules.1.2.conv", v1, stride=2, padding=1))
    v = block("mid_modules.1", block("mid_modules.0", v2))
    for i, skip in enumerate((v2, v1)):  # the finest scale has no skip, as published
        v = pair(f"up_modules.{i}", torch.cat([v, skip], 1))
        name = f"up_modules.{i}.2.conv"
        v = F.conv_transpose1d(v, w[f"{name}.weight"], w[f"{name}.bias"], stride=2, padding=1)
    return conv("final_conv.1", conv_block("final_conv.0", v)).transpose(1, 2)


@torch.no_grad()
@pytest.mark.parametrize("horizon", [4, 16])
def test_network_equals_the_graph_written_from_its_names(horizon: int) -> None:
    network = tiny().double()
    actions, timestep, condition = inputs(3, horizon)
    given = (actions.double(), timestep, condition.double())
    got = network(*given)
    assert got.shape == (3, horizon, 2)
    torch.testing.assert_close(got, naive_unet(dict(network.named_parameters()), *given), rtol=1e-5, atol=1e-6)


def test_every_parameter_has_a_published_name() -> None:
    """Names and number of the published network's tensors: 12 residual blocks, 4 resamplings, and the ends."""
    names = list(tiny().state_dict())
    starts = {"diffusion_step_encoder", "mid_modules", "down_modules", "up_modules", "final_conv"}
    assert {name.split(".")[0] for name in names} == starts
    assert sum(name.endswith("cond_encoder.1.weight") for name in names) == 12
    assert sum(name.endswith("2.conv.weight") for name in names) == 4
    for each in ("up_modules.1.0.blocks.1.block.0.weight", "down_modules.0.0.residual_conv.bias", "final_conv.1.bias"):
        assert each in names


@torch.no_grad()
def test_a_shift_alone_is_the_same_with_a_scale_of_one() -> None:
    torch.manual_seed(0)
    both, shift = FilmResidualBlock(2, 4, 3, 3, 2), FilmResidualBlock(2, 4, 3, 3, 2, "shift")
    weights = {name: tensor.clone() for name, tensor in both.state_dict().items()}
    both.cond_encoder[1].weight[:4], both.cond_encoder[1].bias[:4] = 0.0, 1.0
    for name in ("cond_encoder.1.weight", "cond_encoder.1.bias"):
        weights[name] = weights[name][4:]
    shift.load_state_dict(weights)
    x, condition = torch.randn(3, 2, 5), torch.randn(3, 3)
    torch.testing.assert_close(both(x, condition), shift(x, condition))


def test_the_last_block_may_have_other_groups() -> None:
    network = DiffusionUnet1d(2, CONDITION, UnetSizes((16, 16), groups=4, final_groups=8))
    groups = [module.num_groups for module in network.modules() if isinstance(module, torch.nn.GroupNorm)]
    assert (set(groups[:-1]), groups[-1]) == ({4}, 8)
    assert DiffusionUnet1d(2, CONDITION, UnetSizes((16, 16), groups=4)).sizes["final_groups"] == 4


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    network, given = tiny(), inputs(3)
    together = network(*given)
    for row in range(3):
        alone = network(*(tensor[row : row + 1] for tensor in given))
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("changed", [0, 1, 2], ids=["actions", "timestep", "condition"])
def test_every_input_matters(changed: int) -> None:
    network, given = tiny(), list(inputs(1))
    before = network(*given)
    given[changed] = given[changed] + 1
    assert (network(*given) - before).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"down_dims": (8, 10)}, "down_dims: 10 is not a multiple of groups, 8"),
        ({"down_dims": (8,)}, "fewer than two scales"),
        ({"kernel": 4}, "kernel: 4 is not odd"),
        ({"film": "scale"}, "film: 'scale' is not known; known: scale_shift, shift"),
        ({"final_groups": 3}, "down_dims: 8 is not a multiple of final_groups, 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(sizes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"conditional_unet1d: .*{said}"):
        UnetSizes(**{"down_dims": (8, 16), **sizes})  # type: ignore[arg-type]
