"""Held-out questions are balanced, on scenes of their own, and the tokenizer has a token for every answer.

Guards: a type that a model without eyes answers; training scenes among the held-out ones; a packed sequence in which
one question sees another.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.models.idefics3 import build_idefics3
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.train.push_table import corners
from auras_ros.train.vlm import questions, stages
from auras_ros.train.vlm.beginning import NEIGHBOURS, look_around
from auras_ros.train.vlm.conversation import Conversations
from auras_ros.train.vlm.folder import MOST_TOKENS, make_tokenizer, sizes, write_folder
from auras_ros.train.vlm.learning import resampled, vote_loss
from auras_ros.train.vlm.pictures import COLUMNS, GRID, MAPS, TEE, _facts, _maps
from auras_ros.train.vlm.questions import HELD_OUT, TOPICS, held_out
from auras_ros.train.vlm.scenes import NEAR_COVERAGE, draw_scene

TOKENIZER = make_tokenizer()


@pytest.mark.parametrize("name", TOPICS)
def test_answers_are_balanced(name: str) -> None:
    asked = list(held_out(name, 40))
    assert len(asked) == 40
    counts = Counter(each.answer for each in asked)
    if name == "place":
        assert max(counts.values()) <= 2
        assert all(each.scene.coverage < NEAR_COVERAGE for each in asked)
    else:
        assert set(counts) == set(TOPICS[name].answers)
        assert max(counts.values()) - min(counts.values()) <= 1
    if name == "goal":
        assert sum(each.scene.coverage >= NEAR_COVERAGE for each in asked if each.answer == "no") == 10


def test_wordings_say_nothing_about_the_answer() -> None:
    asked = list(held_out("way", 200))
    shares = [
        np.mean([each.answer == "yes" for each in asked if each.text == wording]) for wording in TOPICS["way"].wordings
    ]
    assert 0.3 < min(shares) < max(shares) < 0.7


def test_no_training_scene_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    drawn = questions.draw_scene
    monkeypatch.setattr(questions, "draw_scene", lambda seed: seeds.append(seed) or drawn(seed))
    for name in TOPICS:
        list(held_out(name, 2))
    assert min(seeds) >= HELD_OUT
    assert len(set(seeds)) == len(seeds)
    assert stages.SEEDS * (stages.MOST_SEED + 1) + stages.VlmSchedule().pictures < HELD_OUT


def test_every_answer_is_few_tokens_of_a_small_tokenizer() -> None:
    assert TOKENIZER.get_vocab_size() <= MOST_TOKENS == 2000
    for topic in TOPICS.values():
        assert all(len(TOKENIZER.encode(f" {answer}").ids) == 1 for answer in topic.answers)
    assert {len(TOKENIZER.encode(f" x {x} y {100 - x}").ids) for x in range(101)} == {4}
    text = 'anything else: "Ünïcode"?'
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


def test_packed_questions_are_the_chat_templates_and_see_only_themselves(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = sizes(TOKENIZER.get_vocab_size())
    model = build_idefics3(config).eval()
    write_folder(tmp_path, model, config, TOKENIZER)
    checkpoint = open_vlm(tmp_path)
    conversations = Conversations(TOKENIZER, config.tokens)
    answers, places = torch.zeros(1, len(COLUMNS), dtype=torch.int64), torch.tensor([[37.0, 62.0]])
    packed = conversations.pack(answers, places)
    starts = (packed.places == len(conversations.shared)).nonzero().flatten().tolist()
    ends = [*starts[1:], packed.ids.shape[1]]
    picture = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
    with torch.no_grad():
        whole = model.language.embed(packed.ids)
        hidden = model.language(whole, mask=packed.mask, places=packed.places)
        for start, end in zip(starts, ends, strict=True):
            ids = torch.cat([packed.ids[0, : len(conversations.shared)], packed.ids[0, start:end]])
            text = TOKENIZER.decode(ids.tolist(), skip_special_tokens=True)
            question = text.partition("User:")[2].partition("\n")[0]
            content = [{"type": "image"}, {"type": "text", "text": question}]
            prompt = checkpoint.prompts.chat([{"role": "user", "content": content}], [picture])
            assert ids[: len(prompt.ids)].tolist() == prompt.ids.tolist()
            alone = model.language(model.language.embed(ids)[None])
            assert torch.allclose(alone[0, len(conversations.shared) :], hidden[0, start:end], atol=1e-4)
    assert (packed.targets.sum(-1) - 1).abs().max() < 1e-5
    following = packed.ids[0, packed.answered + 1]
    assert torch.equal(packed.targets[0].argmax(-1), following)


def test_votes_are_counted_from_their_cells_and_only_where_the_tee_shows() -> None:
    scene, side = draw_scene(7), 12
    facts = torch.tensor([_facts(scene)], dtype=torch.float32)
    image = PosedTable().picture(scene.tee, scene.pusher, scene.things)
    tee = torch.from_numpy(_maps(scene, image))[None, :, TEE]
    cell = 512 / side
    centres = np.array([[(x + 0.5) * cell, (y + 0.5) * cell] for y in range(side) for x in range(side)])
    offsets = (corners(scene.tee)[None] - centres[:, None]).reshape(side * side, 16) / 256
    turn = np.broadcast_to([np.sin(scene.turn), np.cos(scene.turn)], (side * side, 2))
    right = torch.from_numpy(np.concatenate([offsets, turn], 1)).float()[None]
    assert vote_loss(right, tee, facts) < 1e-9
    assert 0 < (tee > 0).sum() < 40
    assert vote_loss(right + (tee[..., None] == 0).float(), tee, facts) < 1e-9
    assert vote_loss(right + 0.5 * (tee[..., None] > 0.5).float(), tee, facts) > 0.1


def test_the_first_heads_begin_by_looking_at_a_neighbour() -> None:
    vision = build_idefics3(sizes(TOKENIZER.get_vocab_size())).vision
    look_around(vision)
    side, middle = 12, 6 * 12 + 5
    x = vision.layers[0].norm1(vision.pos_embed)
    for layer, offsets in zip(vision.layers, NEIGHBOURS, strict=False):
        query, key, _ = layer.attn.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        looked_at = (query @ key.transpose(-1, -2))[0, :, middle].argmax(-1).tolist()
        assert looked_at == [middle + column + side * row for column, row in offsets]


def test_maps_keep_their_sums_in_larger_cells() -> None:
    maps = torch.rand(2, GRID * GRID, MAPS)
    made = resampled(maps, 64)
    assert torch.allclose(made.sum(1), maps.sum(1), atol=1e-4)
    assert torch.allclose(resampled(maps, GRID * GRID), maps)
