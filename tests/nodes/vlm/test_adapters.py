"""Questions for an adapter and answers of a task head, over topics; and the parameter `loras` while the node runs.

Guards: a box in another image's pixels or with another image's stamp; a change of `loras` that does half of what it
says, or that says nothing of what it refuses; an adapter that cannot be asked for until the node is configured again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.ros import BACKEND

if BACKEND == "rclpy":
    pytest.importorskip("vision_msgs", reason="detections need vision_msgs, which has no wheel")

from auras_ros.engine.request import VlmRequest
from auras_ros.lora.heads import DetectedBox
from auras_ros.nodes.common.loaded_node import FAILURE
from auras_ros.nodes.vlm.detections import detections_message
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.ros import Parameter
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import Detection2DArray, ParameterMsg, ParameterType, ParameterValue
from auras_ros.ros.srv import SetParameters
from tests.lora.adapters import change_config, save_adapter
from tests.nodes.vlm.conftest import TEXT, Bench
from tests.nodes.wire import RELIABLE

WIDTH = 48
HEADS: dict[str, dict[str, Any]] = {
    "class": {"kind": "classification", "labels": ["left", "right", "none"]},
    "box": {"kind": "box", "boxes": 2, "labels": ["tee", "goal"], "threshold": 0.0},
    "action": {"kind": "action", "labels": ["x", "y"]},
}


@pytest.fixture(scope="module")
def adapters(vlm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two, those of HEADS, and one that is refused."""
    from transformers import AutoModelForImageTextToText

    model, root = AutoModelForImageTextToText.from_pretrained(vlm_folder), tmp_path_factory.mktemp("loras")
    names = ("left", "right", *HEADS, "bad")
    made = {name: save_adapter(root / name, model, seed=seed) for seed, name in enumerate(names)}
    for name, config in HEADS.items():
        count = len(config["labels"])
        outputs = config["boxes"] * (4 + count) if name == "box" else count
        weight = torch.randn(outputs, WIDTH, generator=torch.Generator().manual_seed(outputs))
        (made[name] / "task_head.json").write_text(json.dumps(config))
        save_file({"weight": weight, "bias": torch.zeros(outputs)}, made[name] / "task_head.safetensors")
    change_config(made["bad"], r=3)
    return made


def named(adapters: dict[str, Path], *names: str) -> str:
    """The parameter `loras`."""
    return ",".join(f"{name}={adapters[name]}" for name in names)


@pytest.fixture
def adapted(bench: Bench, adapters: dict[str, Path]) -> Iterator[Bench]:
    """Active, with two adapters and those of HEADS."""
    bench.fresh(loras=named(adapters, "left", "right", *HEADS), max_loras=2, max_lora_rank=4, kv_mib=16)
    yield bench
    bench.stop()


def own(bench: Bench, adapter: str, **others: Any) -> Any:
    """What the engine answers where nobody asks over topics."""
    engine: Any = bench.node.status.configured.engine  # type: ignore[union-attr]
    prompt = engine.checkpoint.prompts.chat([{"role": "user", "content": [{"type": "text", "text": TEXT}]}], [])
    request = VlmRequest(prompt, engine.checkpoint.sampling, max_tokens=8, adapter=adapter, **others)
    return engine.submit(request).result(60)


def change(bench: Bench, loras: str) -> tuple[bool, str]:
    (result,) = bench.node.set_parameters([Parameter("loras", value=loras)])
    return result.successful, result.reason


def test_a_question_names_its_adapter(adapted: Bench) -> None:
    """Left out or empty: none. Each answer says which it had."""
    texts = {}
    for name in ("", "left", "right"):
        answer = adapted.answer(adapted.ask(adapter=name, max_tokens=8))
        assert (answer["adapter"], answer["result"], answer["text"]) == (name, None, own(adapted, name).text)
        texts[name] = answer["text"]
    assert len(set(texts.values())) == 3
    answer = adapted.answer(adapted.ask(max_tokens=8))
    assert (answer["adapter"], answer["text"]) == ("", texts[""])


def test_a_heads_answer_has_its_result(adapted: Bench) -> None:
    for name in HEADS:
        want = own(adapted, name).result
        answer = adapted.answer(adapted.ask(adapter=name))
        assert (answer["adapter"], answer["text"], answer["finish"]) == (name, want.text, "stop")
        result = answer["result"]
        assert list(result) == ["kind", "label", "score", "values", "boxes"]
        assert (result["kind"], result["label"], result["values"]) == (want.kind, want.label, list(want.values))
        assert len(result["boxes"]) == (2 if name == "box" else 0)
        assert answer["tokens"]["answer"] == 0
    tokens = adapted.answer(adapted.ask(adapter="class", head=False, max_tokens=8))
    assert (tokens["result"], tokens["text"]) == (None, own(adapted, "class", head=False).text)


def test_boxes_are_detections_in_pixels_of_the_image_that_was_asked_about(adapted: Bench) -> None:
    heard: list[Detection2DArray] = []
    topic = adapted.watch.node.create_subscription(Detection2DArray, "detections", heard.append, RELIABLE)
    publisher: Any = adapted.node._answers.detections
    adapted.watch.until(publisher._publisher.get_subscription_count, "a reader of detections")
    adapted.answer(adapted.ask(adapter="box"))  # about no image: there are no pixels
    adapted.image("top")
    adapted.answer(adapted.ask(adapter="class", camera="top"))  # has no boxes
    asked_ns = adapted.image("side", stamp_ns=time.time_ns() - 50_000_000)
    answer = adapted.answer(adapted.ask(adapter="box", camera="side"))
    adapted.watch.until(lambda: heard, "detections")
    adapted.watch.node.destroy_subscription(topic)
    (array,) = heard
    assert (stamp_ns(array), array.header.frame_id) == (asked_ns, "side")
    assert answer["image"]["stamp_ns"] == asked_ns
    assert len(array.detections) == len(answer["result"]["boxes"]) == 2
    for each, box in zip(array.detections, answer["result"]["boxes"], strict=True):
        assert each.header == array.header
        (found,) = each.results
        assert (found.hypothesis.class_id, found.hypothesis.score) == (box["label"], box["score"])
        centre = each.bbox.center
        assert (centre.position.x, centre.position.y, centre.theta) == (box["x"] * 64, box["y"] * 48, 0.0)
        assert (each.bbox.size_x, each.bbox.size_y) == (box["width"] * 64, box["height"] * 48)


def test_nothing_found_is_an_empty_array() -> None:
    assert detections_message(5, "top", (48, 64), ()).detections == []
    (one,) = detections_message(5, "top", (10, 20), (DetectedBox("tee", 0.5, 0.5, 0.25, 0.1, 1.0),)).detections
    assert (one.bbox.center.position.x, one.bbox.center.position.y) == (10.0, 2.5)
    assert (one.bbox.size_x, one.bbox.size_y) == (2.0, 10.0)


def test_a_standing_question_has_an_adapter(bench: Bench, adapters: dict[str, Path]) -> None:
    goal = {"name": "goal", "text": "is it?", "camera": "top", "adapter": "class"}
    bench.fresh(loras=named(adapters, "class"), max_lora_rank=4, kv_mib=16, standing=json.dumps([goal]))
    assert bench.node.status.configured.engine.options.max_loras == 1, "as many as are named"  # type: ignore[union-attr]
    bench.image()
    answer = bench.answer("goal/1")
    assert (answer["adapter"], answer["result"]["kind"], answer["text"]) == (
        "class", "classification", answer["result"]["label"],
    )  # fmt: skip
    bench.stop()


def test_what_cannot_be_asked_of_adapters_is_refused_by_name(adapted: Bench) -> None:
    for fields, reason in (
        ({"adapter": "middle"}, "adapter: there is no 'middle'; there are: action, box, class, left, right"),
        ({"adapter": 1}, "question: adapter: expected a text, got 1"),
        ({"adapter": "left", "head": True}, "head: adapter 'left' has no task head"),
        ({"head": True}, "head: adapter '' has no task head"),
        ({"adapter": "class", "head": "yes"}, "question: head: expected true or false, got 'yes'"),
    ):
        answer = adapted.answer(adapted.ask(**fields))  # type: ignore[arg-type]
        assert (answer["finish"], answer["result"]) == ("refused", None)
        assert reason in answer["detail"]


def test_loras_is_changed_while_questions_are_answered(adapted: Bench, adapters: dict[str, Path]) -> None:
    """Over the wire, as `ros2 param set` does it: what differs is added and removed."""
    client = adapted.watch.node.create_client(SetParameters, "vlm/set_parameters")
    adapted.watch.until(client.service_is_ready, "the parameters' service")
    adapted.gate.close()
    name = adapted.ask(adapter="left", max_tokens=8)
    adapted.watch.until(adapted.gate.waits.is_set, "an answer under way")
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=named(adapters, "right"))
    request = SetParameters.Request(parameters=[ParameterMsg(name="loras", value=value)])
    future = client.call_async(request)
    adapted.watch.until(future.done, "an answer of the parameters' service")
    (result,) = future.result().results
    assert (result.successful, result.reason) == (True, "")
    engine: Any = adapted.node.status.configured.engine  # type: ignore[union-attr]
    assert engine.adapter_names() == ["right"]
    adapted.gate.open()
    assert adapted.answer(name)["finish"] in ("stop", "length"), "who has it keeps it"
    assert "there is no 'left'; there are: right" in adapted.answer(adapted.ask(adapter="left"))["detail"]
    adapted.diagnosed.until("vlm: adapters", "OK", "there are: right")
    assert change(adapted, named(adapters, "right", "left")) == (True, "")
    assert adapted.answer(adapted.ask(adapter="left", max_tokens=8))["text"] == own(adapted, "left").text
    assert change(adapted, "") == (True, "")
    assert engine.adapter_names() == []
    adapted.watch.node.destroy_client(client)


def test_a_change_that_is_refused_changes_nothing(adapted: Bench, adapters: dict[str, Path]) -> None:
    engine: Any = adapted.node.status.configured.engine  # type: ignore[union-attr]
    before, there = adapted.node.get_parameter("loras").value, engine.adapter_names()
    unloadable = "vlm: what its parameters name cannot be loaded; the log on its own computer says why"
    for loras, words in (
        (named(adapters, "left", "bad"), unloadable),
        (f"left={adapters['right']},bad={adapters['bad']}", unloadable),
        ("left", "vlm: loras: expected name=folder, got 'left'"),
        (named(adapters, "left", "left"), "vlm: loras: 'left' is there twice"),
        ("new=/no/such/folder", unloadable),
        (f"new=/{'x' * 300}", unloadable),
    ):
        successful, reason = change(adapted, loras)
        assert (successful, words in reason) == (False, True), reason
        assert (adapted.node.get_parameter("loras").value, engine.adapter_names()) == (before, there)
    (result,) = adapted.node.set_parameters([Parameter("loras", value=3)])
    assert (result.successful, "vlm: loras: expected str, got 3" in result.reason) == (False, True)
    left, right = own(adapted, "left").text, own(adapted, "right").text
    assert left != right
    assert change(adapted, f"left={adapters['right']}") == (True, ""), "another folder under the same name"
    assert own(adapted, "left").text == right


def test_an_adapter_that_is_refused_refuses_the_configuration(
    bench: Bench, adapters: dict[str, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    bench.stop()
    bench.set(loras=named(adapters, "left", "bad"), max_lora_rank=4, kv_mib=16)
    assert bench.node.trigger_configure() == FAILURE
    assert "vlm: what its parameters name cannot be loaded" in bench.node.status.text()
    assert "vlm: loras: bad: " in capfd.readouterr().err
    bench.set(loras=named(adapters, "left"), max_lora_rank=2, kv_mib=16)
    assert bench.node.trigger_configure() == FAILURE
    assert "rank 4, expected 2 at most" in capfd.readouterr().err


def test_a_node_without_memory_for_adapters_says_so(bench: Bench, adapters: dict[str, Path]) -> None:
    bench.fresh()
    successful, reason = change(bench, named(adapters, "left"))
    assert (successful, "takes none (max_loras)" in reason) == (False, True)
    assert "takes none (max_loras)" in bench.answer(bench.ask(adapter="left"))["detail"]
    assert bench.node._answers.detections is None
    bench.diagnosed.until("vlm: adapters", "OK", "none can be asked for: max_loras is 0")


@pytest.mark.parametrize(
    ("loras", "words"),
    [
        ("left", "vlm: loras: expected name=folder, got 'left'"),
        ("=x", "vlm: loras: expected name=folder, got '=x'"),
        ("left=x,", "vlm: loras: expected name=folder, got ''"),
        ("left=x, left = y", "vlm: loras: 'left' is there twice"),
    ],
)
def test_a_parameter_that_names_no_adapter_is_refused(loras: str, words: str) -> None:
    with pytest.raises(ValueError, match="vlm: loras: ") as refused:
        VlmSettings(loras=loras).check()
    assert str(refused.value) == words


def test_as_many_are_in_memory_as_are_named_and_eight_at_most() -> None:
    many = ",".join(f"a{number}=x" for number in range(20))
    for loras, given, slots in (("", 0, 0), ("", 3, 3), (" a = x , b=y", 0, 2), (many, 0, 8), (many, 12, 12)):
        assert VlmSettings(loras=loras, max_loras=given).engine_options().max_loras == slots
