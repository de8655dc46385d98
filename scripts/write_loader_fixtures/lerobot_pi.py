"""Writes tests/policies/loaders/data/lerobot_pi0 and lerobot_pi05 with LeRobot 0.4.4's own classes.

    python scripts/write_loader_fixtures/lerobot_pi.py

It takes lerobot 0.4.4 and transformers 4.57. PaliGemma's sizes are fixed
in LeRobot's code: they are replaced here by tiny ones, everything else is its own. Where transformers is not LeRobot's
changed one, `patched_gemma` changes it. Weights are random, norms around one.
"""

from __future__ import annotations

from typing import Any

import lerobot_fixture as fixture
import patched_gemma
import tiny_tokenizer
import torch
from torch import Tensor

patched_gemma.install()

from lerobot.policies.pi0 import modeling_pi0, processor_pi0  # noqa: E402
from lerobot.policies.pi0.configuration_pi0 import PI0Config  # noqa: E402
from lerobot.policies.pi05 import modeling_pi05, processor_pi05  # noqa: E402
from lerobot.policies.pi05.configuration_pi05 import PI05Config  # noqa: E402
from lerobot.processor import tokenizer_processor  # noqa: E402

SIDE, STATES, ACTIONS = 28, 3, 4
CAMERAS = {"top": (20, 36), "wrist": (SIDE, SIDE)}  # height, width
PROMPT = "pick up the_cube"
FEATURES = fixture.features(CAMERAS, STATES, ACTIONS)
STATISTICS = fixture.statistics(FEATURES)
for values in STATISTICS.values():  # what lies outside is 1 % at either end
    values |= {"q01": values["min"] + 0.1, "q99": values["max"] - 0.1}


def shrink(module: Any) -> None:
    """Tiny sizes where LeRobot's code has PaliGemma's."""
    sizes = {"gemma_2b": (32, 2, 48, 2, 1, 16), "gemma_300m": (16, 2, 24, 2, 1, 16)}
    module.get_gemma_config = lambda variant: module.GemmaConfig(*sizes[variant])
    large, small = module.PaliGemmaForConditionalGeneration, module.GemmaForCausalLM

    def paligemma(config: Any) -> Any:
        vision, text = config.vision_config, config.text_config
        vision.hidden_size, vision.num_hidden_layers, vision.num_attention_heads = 24, 2, 2
        vision.intermediate_size, vision.patch_size, vision.projection_dim = 32, 14, text.hidden_size
        vision.vision_use_head = False
        text.vocab_size, config.pad_token_id, text.pad_token_id = len(tiny_tokenizer.pretrained()), 0, 0
        return large(config)

    def gemma(config: Any) -> Any:
        config.vocab_size, config.pad_token_id = 8, 0
        return small(config)

    module.PaliGemmaForConditionalGeneration, module.GemmaForCausalLM = paligemma, gemma


def randomise(policy: torch.nn.Module) -> None:
    random = torch.Generator().manual_seed(0)
    for name, parameter in policy.named_parameters():
        around = float(name.endswith(("layer_norm1.weight", "layer_norm2.weight", "post_layernorm.weight")))
        parameter.data.copy_(around + 0.2 * torch.randn(parameter.shape, generator=random))


def write(name: str, policy: Any, processors: Any, begin: bool = True, state: Tensor | None = None) -> None:
    """The folder as save_pretrained writes it, the tokenizer, robot.json and the reference's own actions."""
    config = policy.config
    names = {"input_features": {key: each for key, each in config.input_features.items() if "empty" not in key}}
    raw = fixture.observations(names, STATISTICS, 1)
    if state is not None:
        raw["observation.state"] = state[None]
    batch = processors[0]({**fixture.frame(raw, 0), "task": PROMPT})
    shape = (1, config.chunk_size, config.max_action_dim)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    actions = processors[1](policy.predict_action_chunk(batch, noise=noise))[0, : config.n_action_steps]
    more = {"state": fixture.JOINTS[:STATES], "prompt": PROMPT}
    fixture.write(name, (policy, *processors), raw, actions, noise[0], **more)
    tiny_tokenizer.tokenizer(begin).save(str(fixture.DATA / name / "tokenizer.json"))
    tokens = batch["observation.language.tokens"][batch["observation.language.attention_mask"]]
    print("tokens", tokens.tolist())


def main() -> None:
    tokenizer_processor.AutoTokenizer = type(
        "Tiny", (), {"from_pretrained": staticmethod(lambda _name: tiny_tokenizer.pretrained())}
    )
    sizes: dict[str, Any] = {
        "chunk_size": 6, "n_action_steps": 4, "max_state_dim": 5, "max_action_dim": 6, "num_inference_steps": 4,
        "image_resolution": (SIDE, SIDE), "empty_cameras": 1, "device": "cpu", "push_to_hub": False,
    }  # fmt: skip
    shrink(modeling_pi0)
    config = PI0Config(**FEATURES, **sizes, tokenizer_max_length=24)
    policy = modeling_pi0.PI0Policy(config)
    randomise(policy)
    write("lerobot_pi0", policy, processor_pi0.make_pi0_pre_post_processors(config, STATISTICS))
    shrink(modeling_pi05)
    config = PI05Config(**FEATURES, **sizes, tokenizer_max_length=80)
    policy = modeling_pi05.PI05Policy(config)
    randomise(policy)
    low, high = (STATISTICS["observation.state"][key] for key in ("q01", "q99"))
    state = low + torch.tensor([-0.05, 0.31, 0.97]) * (high - low)  # the first below its range: bin -1
    made = processor_pi05.make_pi05_pre_post_processors(config, STATISTICS)
    write("lerobot_pi05", policy, made, state=state)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
