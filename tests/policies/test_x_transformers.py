"""A checkpoint whose decoder is x-transformers' keywords: written with a golden sample, loaded, run in every mode.

Guards: keywords that the manifest loses on the way; merged requests that differ from plain decoding; a wrong manifest
that is not refused by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.action import Contract
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.observation import ObservationSpec
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint, load
from auras_ros.policies.writing import Description, write
from tests.pipeline.real import SEEDS, moving, real, run, still
from tests.policies import tiny
from tests.policies.spoil import edit_manifest

pytest.importorskip("x_transformers")

DECODER = {"dim": 24, "depth": 2, "heads": 2, "attn_dim_head": 12, "alibi_pos_bias": True, "ff_glu": True}
NETWORK = {"tokens": 2, "bins": 32, "decoder": DECODER, "wrapper": {"use_abs_pos_emb": False, "emb_dim": 16}}
TOKENS: dict[str, Any] = {"type": "x-transformers", "network": NETWORK, "horizon": 3, "plans": {"quick": {}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny.checkpoint(**TOKENS)
    for part in made.networks.values():
        for weight in part.parameters():
            weight.add_(torch.randn_like(weight) * 1.0)
    manifest = tiny.manifest(**TOKENS)
    description = Description(
        name="tokens",
        type="x-transformers",
        horizon=3,
        spec=ObservationSpec.from_dict(manifest["observation"]),
        contract=Contract.from_dict(manifest["action"]),
        lower=tiny.LOWER,
        upper=tiny.UPPER,
        plans=manifest["plans"],
        encoder=manifest["encoder"],
        network=NETWORK,
    )
    random = np.random.default_rng(0)
    images = {"top": random.integers(0, 256, (2, tiny.SIDE, tiny.SIDE, 3), dtype=np.uint8)}
    state = {axis: random.uniform(0, 512, 2) for axis in tiny.AXES}
    path = tmp_path_factory.mktemp("x") / "tokens"
    write(path, description, made.networks, images, state)
    return path


@pytest.fixture(scope="module")
def checkpoint(folder: Path) -> Checkpoint:
    return load(folder)


def test_it_is_loaded_as_it_was_written(checkpoint: Checkpoint) -> None:
    decoder: Any = checkpoint.networks["decoder"]
    assert (decoder.decoder_keywords, decoder.wrapper_keywords) == (DECODER, NETWORK["wrapper"])
    assert (decoder.vocabulary, decoder.tokens, decoder.prefix) == (32, 3 * 2, 2 * 2)


def test_every_mode_decodes_as_the_library_does(checkpoint: Checkpoint) -> None:
    """On a picture that stands still all modes give what greedy decoding gives, token for token."""
    from x_transformers import AutoregressiveWrapper

    policy: Any = checkpoint.policy("quick")
    seen = still(9)
    context = policy.perceive(seen[0].images, seen[0].state)
    ids = torch.empty(len(SEEDS), 0, dtype=torch.int64)
    net = AutoregressiveWrapper(policy.decoder.net).eval().net
    for _ in range(policy.steps):
        ids = torch.cat([ids, net(ids, prepend_embeds=context)[:, -1:].argmax(-1)], 1)
    expected = policy.codec.decode(ids.view(len(SEEDS), 3, 2))
    assert len(set(ids.flatten().tolist())) > 3
    plans = ["mode=seq", "mode=dec", "mode=par,concurrency=2"]
    plans += ["mode=auras,pp_generation=3", "mode=auras,pp_generation=6,reuse=exact", "mode=auras,pp_generation=2"]
    for text in plans:
        emissions = run(real(Plan.parse(text), policy, like=seen[0]), seen)
        assert len(emissions) > 1, text
        for emission in emissions:
            assert torch.equal(emission.actions, expected), text


def test_what_is_kept_of_the_frame_before_changes_nothing(checkpoint: Checkpoint) -> None:
    policy, seen = checkpoint.policy("quick"), moving(9)
    seen = [seen[i // 2] for i in range(9)]  # every picture twice
    kept, recomputed = (
        run(real(Plan.parse(f"mode=auras,pp_generation=3,reuse={reuse}"), policy, like=seen[0]), seen)
        for reuse in ("exact", "none")
    )
    assert len(kept) == len(recomputed) > 3
    for one, other in zip(kept, recomputed, strict=True):
        assert torch.equal(one.actions, other.actions)
    assert not torch.equal(kept[0].actions, kept[-1].actions)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no causal decoder": ({"decoder": {**DECODER, "orthog_residual": True}}, "keyword 'orthog_residual' .True.: "),
    "unknown keyword": ({"wrapper": {"colour": 1}}, "keyword 'colour'"),
    "keywords no object": ({"decoder": [1]}, "network: decoder: \\[1\\] is not an object"),
    "wrapper no object": ({"wrapper": 3}, "network: wrapper: 3 is not an object"),
    "no bins": ({"bins": 0}, "network: bins: 0 is not a whole number above zero"),
    "another key": ({"width": 3}, "network: 'width' is unknown"),
    "other keywords than the weights": ({"decoder": {**DECODER, "ff_glu": False}}, "tensor 'decoder.net.attn_layers"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_network_is_refused_by_name(name: str, folder: Path, tmp_path: Path) -> None:
    changes, said = FAULTS[name]
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    edit_manifest(tmp_path, lambda manifest: manifest["network"].update(changes))
    with pytest.raises(CheckpointError, match=said):
        load(tmp_path)


def test_a_network_that_is_no_object_or_lacks_a_key_is_refused() -> None:
    with pytest.raises(CheckpointError, match="network: 3 is not an object"):
        tiny.checkpoint(**{**TOKENS, "network": 3})
    with pytest.raises(CheckpointError, match="network: 'decoder' is missing"):
        tiny.checkpoint(**{**TOKENS, "network": {"tokens": 2, "bins": 3}})


def test_what_tokens_cannot_mean_is_refused() -> None:
    spread = {"kind": "mean_std", "mean": [0.0, 0.0], "std": [1.0, 1.0]}
    with pytest.raises(CheckpointError, match="statistics must be min_max"):
        tiny.checkpoint(**{**TOKENS, "statistics": spread}).policy("quick")
    with pytest.raises(CheckpointError, match="key 'steps' is unknown"):
        tiny.checkpoint(**{**TOKENS, "plans": {"quick": {"steps": 3}}}).policy("quick")
