"""Prints how the type of the weights changes the included model's answers: `python -m tests.engine.token_changes`."""

from __future__ import annotations

from contextlib import closing

from auras_ros import resources
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.build import make_engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import VlmRequest
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.train.vlm.evaluation import is_right
from auras_ros.train.vlm.questions import TOPICS, TableQuestion, held_out

QUESTIONS = 500  # of each type
FORMS = {"float32": ("float32", False), "bfloat16": ("bfloat16", False), "int8": ("float32", True)}


def answers(questions: list[TableQuestion], dtype: str, int8: bool) -> list[str]:
    checkpoint, table, found = open_vlm(resources.checkpoint("pusht-vlm"), dtype), PosedTable(), list[str]()
    with closing(make_engine(checkpoint, EngineOptions(int8=int8))) as engine:
        engine.start()
        for start in range(0, len(questions), 8):
            replies = []
            for each in questions[start : start + 8]:
                picture = table.picture(each.scene.tee, each.scene.pusher, each.scene.things)
                content = [{"type": "image"}, {"type": "text", "text": each.text}]
                prompt = checkpoint.prompts.chat([{"role": "user", "content": content}], [picture])
                replies.append(engine.submit(VlmRequest(prompt, max_tokens=8)))
            found += [reply.result(60.0).text.strip() for reply in replies]
    return found


def main() -> None:
    asked = [(name, each) for name in TOPICS for each in held_out(name, QUESTIONS)]
    questions = [each for _, each in asked]
    reference: list[str] = []
    print("| weights | right | answers that are float32's |\n|---|---|---|")
    for name, (dtype, int8) in FORMS.items():
        found = answers(questions, dtype, int8)
        reference = reference or found
        right = sum(is_right(topic, each, text) for (topic, each), text in zip(asked, found, strict=True))
        same = sum(own == other for own, other in zip(found, reference, strict=True))
        print(f"| {name} | {right / len(found):.2%} | {same / len(found):.2%} of {len(found)} |", flush=True)


if __name__ == "__main__":
    main()
