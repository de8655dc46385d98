"""The transformer against torch's own decoder and against attention written out; what it may see, and what not.

Guards: an action that sees a later one; the first action seeing the second observation, which published weights never
did; heads split along the wrong axis.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from auras_ros.models.diffusion_transformer import DenoiserAttention, DiffusionTransformer

HORIZON, OBSERVATIONS, EACH = 5, 3, 4


def tiny() -> DiffusionTransformer:
    """With weights large enough that what is not masked shows."""
    torch.manual_seed(0)
    network = DiffusionTransformer(2, OBSERVATIONS * EACH, HORIZON, OBSERVATIONS, layers=2, heads=2, width=8)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5)
    return network.eval()


def inputs(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows)
    actions = torch.randn(rows, HORIZON, 2, generator=random)
    return actions, torch.arange(rows) * 30 + 1, torch.randn(rows, OBSERVATIONS * EACH, generator=random)


def naive_attention(attention: DenoiserAttention, x: Tensor, memory: Tensor, sees: list[list[bool]]) -> Tensor:
    """softmax(q k / sqrt(d)) v, head by head and token by token; x [T, width], memory [S, width]."""
    width, heads = x.shape[1], attention.heads
    size = width // heads
    weight, bias = attention.in_proj_weight.view(3, width, width), attention.in_proj_bias.view(3, width)
    query, key, value = x @ weight[0].T + bias[0], memory @ weight[1].T + bias[1], memory @ weight[2].T + bias[2]
    out = torch.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for t in range(len(x)):
            visible = [s for s in range(len(memory)) if sees[t][s]]
            scores = [math.exp(float(query[t, part] @ key[s, part]) / math.sqrt(size)) for s in visible]
            for s, score in zip(visible, scores, strict=True):
                out[t, part] += score / sum(scores) * value[s, part]
    return out @ attention.out_proj.weight.T + attention.out_proj.bias


@torch.no_grad()
def test_attention_equals_the_sums_written_out() -> None:
    torch.manual_seed(0)
    attention = DenoiserAttention(6, 3).double()
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    x, memory = torch.randn(4, 6).double(), torch.randn(3, 6).double()
    causal = [[s <= t for s in range(4)] for t in range(4)]
    torch.testing.assert_close(attention(x[None])[0], naive_attention(attention, x, x, causal))
    sees = [[True, t > 1, t != 2] for t in range(4)]
    mask = torch.zeros(4, 3).double().masked_fill(~torch.tensor(sees), -math.inf)
    torch.testing.assert_close(
        attention.look_at(x[None], memory[None], mask)[0], naive_attention(attention, x, memory, sees)
    )


@torch.no_grad()
def test_network_equals_one_built_of_torchs_own_decoder() -> None:
    """The published network is nn.TransformerDecoder between these ends; its parameters fit by name."""
    network, (actions, timestep, condition) = tiny(), inputs(3)
    width, heads, layers = 8, 2, 2
    layer = nn.TransformerDecoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    decoder = nn.TransformerDecoder(layer, layers).eval()
    decoder.load_state_dict(network.decoder.state_dict())
    frequency = 10_000.0 ** (-torch.arange(width // 2) / (width // 2 - 1))
    angle = timestep[:, None] * frequency
    time = torch.cat([angle.sin(), angle.cos()], 1)[:, None]
    seen = network.cond_obs_emb(condition.view(3, OBSERVATIONS, EACH))
    memory = network.encoder(torch.cat([time, seen], 1) + network.cond_pos_emb)
    tokens = torch.arange(HORIZON)[:, None]
    hidden = decoder(
        network.input_emb(actions) + network.pos_emb,
        memory,
        tgt_mask=torch.zeros(HORIZON, HORIZON).masked_fill(tokens < tokens.T, -math.inf),
        memory_mask=torch.zeros(HORIZON, 4).masked_fill(~(tokens >= torch.arange(4)[None] - 1), -math.inf),
    )
    expected = network.head(network.ln_f(hidden))
    torch.testing.assert_close(network(actions, timestep, condition), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("token", range(HORIZON))
def test_an_action_sees_itself_and_those_before_it(token: int) -> None:
    network, (actions, timestep, condition) = tiny(), inputs(1)
    before = network(actions, timestep, condition)
    actions[:, token] += 1
    change = (network(actions, timestep, condition) - before).abs().amax(-1)[0]
    assert (change[:token] == 0).all()
    assert (change[token:] > 1e-4).all()


@torch.no_grad()
@pytest.mark.parametrize("step", range(OBSERVATIONS))
def test_an_action_sees_the_observations_up_to_its_own_place(step: int) -> None:
    """As published: memory token 0 is the timestep, token s the observation s - 1, and action t sees 0 to t + 1."""
    network, (actions, timestep, condition) = tiny(), inputs(1)
    before = network(actions, timestep, condition)
    condition[:, step * EACH : (step + 1) * EACH] += 1
    change = (network(actions, timestep, condition) - before).abs().amax(-1)[0]
    assert (change[:step] == 0).all()
    assert (change[step:] > 1e-4).all()


@torch.no_grad()
def test_every_action_sees_the_timestep() -> None:
    network, (actions, timestep, condition) = tiny(), inputs(1)
    change = network(actions, timestep + 40, condition) - network(actions, timestep, condition)
    assert (change.abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    network, given = tiny(), inputs(3)
    together = network(*given)
    for row in range(3):
        alone = network(*(tensor[row : row + 1] for tensor in given))
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-5)


def test_every_parameter_has_a_published_name() -> None:
    names = set(tiny().state_dict())
    layer = {
        *(f"{a}.{p}" for a in ("self_attn", "multihead_attn") for p in ("in_proj_weight", "in_proj_bias")),
        *(f"{a}.out_proj.{p}" for a in ("self_attn", "multihead_attn") for p in ("weight", "bias")),
        *(f"{n}.{p}" for n in ("linear1", "linear2", "norm1", "norm2", "norm3") for p in ("weight", "bias")),
    }
    ends = {
        *("pos_emb", "cond_pos_emb"),
        *(f"{n}.{p}" for n in ("input_emb", "cond_obs_emb", "ln_f", "head") for p in ("weight", "bias")),
        *(f"encoder.{i}.{p}" for i in (0, 2) for p in ("weight", "bias")),
    }
    assert names == ends | {f"decoder.layers.{i}.{each}" for i in range(2) for each in layer}


def test_initial_weights_are_the_published_ones() -> None:
    torch.manual_seed(0)
    network = DiffusionTransformer(2, 8, HORIZON, 2, layers=1, heads=2, width=64)
    named = {name: parameter.detach() for name, parameter in network.named_parameters()}
    for name in ("head.weight", "decoder.layers.0.self_attn.in_proj_weight", "pos_emb"):
        assert float(named[name].std()) == pytest.approx(0.02, rel=0.2), name
    assert float(named["decoder.layers.0.linear1.bias"].abs().max()) == 0
    assert float((named["ln_f.weight"] - 1).abs().max()) == 0
    assert float((named["decoder.layers.0.norm2.weight"] - 1).abs().max()) == 0


def test_sizes_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="transformer: width: 10 is not a multiple of heads, 4"):
        DiffusionTransformer(2, 8, HORIZON, width=10)
    with pytest.raises(ValueError, match="a condition of 9 is not 2 observations of one size"):
        DiffusionTransformer(2, 9, HORIZON, 2)
