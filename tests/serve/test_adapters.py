"""Adapters and task heads over HTTP: chosen by `model`, added and removed while others are served, refused by name.

Guards: an answer of another adapter, or of none; a folder from elsewhere that is read; a folder that is refused and
takes a stream with it; a head's answer that a client takes for text, or that claims to have tokens.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import Answer, VlmRequest
from auras_ros.lora.heads import DetectedBox, HeadResult
from tests.checkpoints.vlm.folders import Written, image, write
from tests.lora.adapters import change_config, change_tensors, save_adapter
from tests.serve.serving import LONG_S, Served, asking, picture, serving

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
OPTIONS = EngineOptions(kv_mib=16, block=4, max_loras=2, max_lora_rank=4)
TOKENS, WIDTH = 6, 48
JSON = {"type": "json_object"}
BOX = ["label", "score", "x", "y", "width", "height"]
ASKED = {"messages": asking("how many red things"), "max_tokens": TOKENS, "ignore_eos": True}
HEADS: dict[str, dict[str, Any]] = {
    "class": {"kind": "classification", "labels": ["left", "right", "none"]},
    "box": {"kind": "box", "boxes": 2, "labels": ["car", "tree"], "threshold": 0.0},
    "action": {"kind": "action", "labels": ["x", "y"]},
}


@dataclass(frozen=True)
class Adapted:
    """A server with two adapters and those of HEADS. folder: of which others may be added."""

    served: Served
    model: Written
    folder: Path

    def add(self, name: str, path: Path | str, **others: Any) -> tuple[int, dict[str, Any]]:
        """Status, and the error if it is one."""
        return changed(self.served, LOAD, {"lora_name": name, "lora_path": str(path), **others})

    def remove(self, name: str) -> tuple[int, dict[str, Any]]:
        return changed(self.served, UNLOAD, {"lora_name": name})


def changed(served: Served, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A change that succeeds is answered with a line of text."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{served.url}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=LONG_S) as answer:
            return answer.status, {"message": answer.read().decode()}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


def write_head(folder: Path, **config: Any) -> Path:
    """Beside an adapter's files; each kind's outputs are as many as it wants."""
    count = len(config["labels"])
    outputs = config["boxes"] * (4 + count) if config["kind"] == "box" else count
    weight = torch.randn(outputs, WIDTH, generator=torch.Generator().manual_seed(outputs))
    (folder / "task_head.json").write_text(json.dumps(config))
    save_file({"weight": weight, "bias": torch.zeros(outputs)}, folder / "task_head.safetensors")
    return folder


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adapted]:
    root = tmp_path_factory.mktemp("adapted")
    with torch.no_grad():
        model = write("smolvlm", root / "tiny")
    for seed, name in enumerate(("left", "right")):
        save_adapter(root / name, model.model, seed=seed)
    for seed, (name, config) in enumerate(HEADS.items()):
        write_head(save_adapter(root / name, model.model, rank=2, seed=10 + seed), **config)
    (root / "allowed").mkdir()
    with serving(model.path, OPTIONS, lora_folder=str(root / "allowed")) as served:
        served.service.adapters.add((name, str(root / name)) for name in ("left", "right", *HEADS))
        yield Adapted(served, model, root / "allowed")


def wanted(adapted: Adapted, adapter: str, *pictures: Any, head: bool | None = None) -> Answer:
    """What the engine answers where no server asks it; a prefix that is known is rounded otherwise."""
    parts = [{"type": "image"}] * len(pictures) + [{"type": "text", "text": "how many red things"}]
    prompt = adapted.served.reference.prompts.chat([{"role": "user", "content": parts}], pictures)
    request = VlmRequest(prompt, max_tokens=TOKENS, ignore_eos=True, adapter=adapter, head=head)
    return adapted.served.engine.submit(request).result(LONG_S)


def answered(adapted: Adapted, **fields: Any) -> dict[str, Any]:
    status, answer = adapted.served.post(CHAT, ASKED | fields)
    assert status == 200, answer
    return answer


def events(adapted: Adapted, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, which ends as it should."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{adapted.served.url}{path}", json.dumps(body | {"stream": True}).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=LONG_S) as answer:
        lines = [line.removeprefix("data: ") for line in answer.read().decode().split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_the_model_of_a_request_is_an_adapter(adapted: Adapted) -> None:
    """Absent, and the model's own name: none."""
    texts = set[str]()
    for name, adapter in ((None, ""), ("tiny", ""), ("left", "left"), ("right", "right")):
        made = answered(adapted, model=name)
        want = wanted(adapted, adapter)
        assert made["choices"][0]["message"]["content"] == want.text
        assert made["model"] == (adapter or "tiny")
        assert "task_result" not in made["choices"][0]
        texts.add(want.text)
    assert len(texts) == 3
    status, made = adapted.served.post(
        TEXT, {"prompt": "the tee", "model": "left", "max_tokens": 4, "ignore_eos": True}
    )
    assert (status, made["model"]) == (200, "left")
    stream = events(adapted, CHAT, ASKED | {"model": "right"})
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in stream) == wanted(adapted, "right").text
    assert {each["model"] for each in stream} == {"right"}


def test_a_name_that_is_no_adapters_is_404_with_those_that_are(adapted: Adapted) -> None:
    status, answer = adapted.served.post(CHAT, ASKED | {"model": "middle"})
    error = answer["error"]
    assert (status, error["param"], error["code"]) == (404, "model", "model_not_found")
    assert (
        "'middle' is not served here; there are: 'tiny', 'action', 'box', 'class', 'left', 'right'" in error["message"]
    )


def test_models_are_the_model_and_its_adapters(adapted: Adapted) -> None:
    listed = json.loads(adapted.served.get("/v1/models")[1])["data"]
    assert [(each["id"], each["parent"]) for each in listed] == [
        ("tiny", None), *((name, "tiny") for name in ("action", "box", "class", "left", "right"))
    ]  # fmt: skip
    assert {each["max_model_len"] for each in listed} == {adapted.served.engine.length}
    assert all(each["created"] > 0 for each in listed)
    assert json.loads(adapted.served.get("/v1/models/left")[1]) == listed[4]
    assert adapted.served.get("/v1/models/middle")[0] == 404
    assert adapted.served.metric("auras_adapters") == 5


def test_one_is_added_and_removed_while_it_serves(adapted: Adapted) -> None:
    save_adapter(adapted.folder / "new", adapted.model.model, seed=7)
    status, said = adapted.add("new", "new")
    assert (status, said["message"]) == (200, "Success: LoRA adapter 'new' added successfully.")
    first = answered(adapted, model="new")["choices"][0]["message"]["content"]
    assert first == wanted(adapted, "new").text
    assert first not in (wanted(adapted, "").text, wanted(adapted, "left").text)
    assert adapted.add("again", adapted.folder / "new")[0] == 200, "an absolute path"
    assert adapted.remove("again")[0] == 200
    status, error = adapted.add("new", "new")
    assert (status, error["param"], "'new' is there already" in error["message"]) == (400, "lora_name", True)
    status, error = adapted.add("tiny", "new")
    assert (status, error["param"], "the name of the model itself" in error["message"]) == (400, "lora_name", True)
    assert adapted.remove("new")[1]["message"] == "Success: LoRA adapter 'new' removed successfully."
    assert adapted.served.post(CHAT, ASKED | {"model": "new"})[0] == 404
    status, error = adapted.remove("new")
    assert (status, error["param"], error["code"]) == (404, "lora_name", "model_not_found")
    status, error = adapted.add("b", "new", rank=4)
    assert (status, error["param"], error["code"]) == (400, "rank", "unknown_field")
    assert adapted.add("", "new")[0] == 400


def _nan(path: Path) -> None:
    change_tensors(path, lambda tensors: next(iter(tensors.values())).fill_(torch.nan))


def _pickle(path: Path) -> None:
    torch.save({}, path / "adapter_model.bin")
    (path / "adapter_model.safetensors").unlink()


def _link(path: Path) -> None:
    """To weights that lie elsewhere."""
    (path / "adapter_model.safetensors").unlink()
    (path / "adapter_model.safetensors").symlink_to(path.parents[1] / "left" / "adapter_model.safetensors")


BROKEN: dict[str, tuple[Callable[[Path], Any], int, str]] = {
    "nan": (_nan, 400, "adapter_model.safetensors: "),
    "pickle": (_pickle, 400, "adapter_model.bin"),
    "rank": (lambda path: change_config(path, r=3), 400, "but the rank is 3"),
    "dora": (lambda path: change_config(path, use_dora=True), 400, "adapter_config.json: adapter_config.use_dora: "),
    "cut": (lambda path: (path / "adapter_model.safetensors").write_bytes(b"x" * 20), 400, "adapter_model.safetensors"),
    "json": (lambda path: (path / "adapter_config.json").write_text("{"), 400, "adapter_config.json: not JSON"),
    "empty": (lambda path: [each.unlink() for each in path.iterdir()], 400, "adapter_config.json: file not found"),
    "head": (lambda path: write_head(path, kind="poem", labels=["a"]), 400, "task_head.kind: 'poem'"),
    "linked": (_link, 403, "option lora_folder"),
}


def test_a_folder_that_is_refused_leaves_a_stream_as_it_is(adapted: Adapted) -> None:
    """All of them, while one answer of an adapter comes."""
    fields: dict[str, Any] = {"max_tokens": 200, "extra_body": {"ignore_eos": True}, "messages": ASKED["messages"]}
    pytest.importorskip("openai")
    client = adapted.served.client()
    alone = client.chat.completions.create(model="left", **fields).choices[0].message.content
    stream = iter(client.chat.completions.create(model="left", stream=True, **fields))
    text = next(stream).choices[0].delta.content or ""
    for name, (spoil, expected, words) in BROKEN.items():
        path = save_adapter(adapted.folder / f"broken-{name}", adapted.model.model, seed=3)
        spoil(path)
        status, error = adapted.add(name, path)
        assert (status, error["param"]) == (expected, "lora_path"), (name, error)
        assert words in error["message"], (name, error)
        assert len(error["message"]) < 2000
    large = save_adapter(adapted.folder / "large", adapted.model.model, rank=8)
    status, error = adapted.add("large", large)
    assert (status, error["param"], "rank 8, expected 4 at most" in error["message"]) == (400, "lora_path", True)
    text += "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == alone
    assert adapted.served.engine.adapter_names() == ["action", "box", "class", "left", "right"]


def test_no_folder_elsewhere_is_read(adapted: Adapted) -> None:
    (adapted.folder / "out").symlink_to(adapted.folder.parent / "left")
    (adapted.folder / "round").symlink_to(adapted.folder / "round")
    outside = ("../left", "/etc", str(adapted.folder.parent / "left"), "out", ".", str(adapted.folder), "x/../../left")
    for path in outside:
        status, error = adapted.add("stolen", path)
        assert (status, error["code"], error["param"]) == (403, "lora_folder", "lora_path"), (path, error)
        assert "lora_folder" in error["message"]
    for path in ("a\0b", "x" * 5000, "round", "nothing"):
        status, error = adapted.add("stolen", path)
        assert (status in (400, 403), error["param"]) == (True, "lora_path"), (path, error)


def test_without_the_option_nothing_is_added_or_removed(folder: Path) -> None:
    with serving(folder, OPTIONS) as fixed:
        for path, body in ((LOAD, {"lora_name": "a", "lora_path": "a"}), (UNLOAD, {"lora_name": "a"})):
            status, error = changed(fixed, path, body)
            assert (status, error["code"], "option lora_folder" in error["message"]) == (403, "lora_folder", True)
        status, answer = fixed.post(LOAD, b"{}", Content_Type="text/plain")
        assert (status, "application/json" in answer["error"]["message"]) == (415, True)


def said(result: dict[str, Any]) -> str:
    """The text of a result."""
    boxes = tuple(DetectedBox(**each) for each in result["boxes"])
    return HeadResult(**result | {"values": tuple(result["values"]), "boxes": boxes}).text


def test_a_task_heads_answer_has_its_result(adapted: Adapted) -> None:
    for name in HEADS:
        made = answered(adapted, model=name)
        choice, want = made["choices"][0], wanted(adapted, name).result
        assert want is not None
        result = choice["task_result"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (said(result), "stop")
        assert list(result) == ["kind", "label", "score", "values", "boxes"]
        assert (result["kind"], result["label"]) == (want.kind, want.label)
        assert result["score"] == pytest.approx(want.score, rel=1e-4)
        assert result["values"] == pytest.approx(list(want.values), rel=1e-4)
        assert [list(each) for each in result["boxes"]] == [BOX] * len(want.boxes)
        usage = made["usage"]
        assert (usage["completion_tokens"], usage["total_tokens"]) == (0, usage["prompt_tokens"])
    made = answered(adapted, model="box", messages=asking("where", picture(image(40, 60))))
    assert len(made["choices"][0]["task_result"]["boxes"]) == 2
    status, made = adapted.served.post(TEXT, {"prompt": "the tee", "model": "class"})
    assert (status, made["choices"][0]["text"]) == (200, made["choices"][0]["task_result"]["label"])


def test_a_task_heads_stream_is_one_chunk(adapted: Adapted) -> None:
    whole = answered(adapted, model="class")["choices"][0]
    (only,) = events(adapted, CHAT, ASKED | {"model": "class"})
    assert only["choices"][0]["delta"] == {"role": "assistant", "content": whole["message"]["content"]}
    assert (only["choices"][0]["finish_reason"], only["choices"][0]["task_result"]) == ("stop", whole["task_result"])
    only, last = events(adapted, CHAT, ASKED | {"model": "class", "stream_options": {"include_usage": True}})
    assert (only["usage"], last["choices"], last["usage"]["completion_tokens"]) == (None, [], 0)
    (only,) = events(adapted, TEXT, {"prompt": "the tee", "model": "class"})
    assert only["choices"][0]["text"] == only["choices"][0]["task_result"]["label"]


def test_openais_client_reads_a_task_heads_answer(adapted: Adapted) -> None:
    pytest.importorskip("openai")
    client = adapted.served.client().chat.completions
    made = client.create(model="class", messages=ASKED["messages"])
    assert made.choices[0].task_result["label"] == made.choices[0].message.content
    chunks = list(client.create(model="class", messages=ASKED["messages"], stream=True))
    assert [each.choices[0].delta.content for each in chunks] == [made.choices[0].message.content]


def test_tokens_are_asked_for_where_there_is_a_head(adapted: Adapted) -> None:
    made = answered(adapted, model="class", task_head=False)
    want = wanted(adapted, "class", head=False)
    assert made["choices"][0]["message"]["content"] == want.text
    assert (made["usage"]["completion_tokens"], "task_result" in made["choices"][0]) == (TOKENS, False)
    assert answered(adapted, model="class", task_head=None)["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"model": "left", "task_head": True}, "task_head", "adapter 'left' has no task head"),
        ({"task_head": True}, "task_head", "has no task head"),
        ({"model": "class", "task_head": "yes"}, "task_head", "valid boolean"),
        ({"model": "class", "task_head": True, "logprobs": True}, "logprobs", "has no tokens"),
        ({"model": "class", "task_head": True, "response_format": JSON}, "response_format", "no tokens"),
        ({"model": "class", "task_head": True, "guided_regex": "a"}, "guided_regex", "has no tokens"),
        ({"model": "class", "logprobs": True}, "logprobs", "task_head: false asks for tokens"),
        ({"model": "class", "logprobs": True, "stream": True}, "logprobs", "task_head: false asks for tokens"),
    ],
    ids=str,
)
def test_what_no_task_head_can_do_is_refused_by_name(
    adapted: Adapted, fields: dict[str, Any], field: str, words: str
) -> None:
    status, answer = adapted.served.post(CHAT, ASKED | fields)
    assert (status, answer["error"]["param"]) == (400, field), answer
    assert words in answer["error"]["message"]


def test_a_form_that_the_head_cannot_have_is_refused(adapted: Adapted) -> None:
    """Also where nobody asked for the head."""
    pytest.importorskip("llguidance")
    status, answer = adapted.served.post(CHAT, ASKED | {"model": "class", "guided_regex": "(left|right)"})
    assert (status, answer["error"]["param"]) == (400, "guided_regex")
    made = answered(adapted, model="class", guided_regex="(left|right)", task_head=False, ignore_eos=False)
    assert made["choices"][0]["message"]["content"] in ("left", "right")


def test_an_engine_that_takes_none_says_so(served: Served) -> None:
    status, answer = served.post(CHAT, ASKED | {"model": "left"})
    assert (status, "there are: 'tiny'" in answer["error"]["message"]) == (404, True)
