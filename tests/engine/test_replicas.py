"""Engines in processes of their own answer as one engine does, and a process that is lost takes only its own requests.

Guards: answers that come to another's request; a request that is left waiting when its process ends, stops or fails;
a process that outlives the one that started it; a pause of both that is taken for a process that hangs;
an adapter that only some replicas have.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

pytest.importorskip("transformers")
pytest.importorskip("PIL")

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.device.lane import DeviceError
from auras_ros.engine import replicas as module
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.replica_link import AddAdapter, RemoveAdapter
from auras_ros.engine.replicas import Replicas
from auras_ros.engine.request import Answer, Delta, EngineClosedError, EngineFullError, InvalidRequestError, VlmRequest
from auras_ros.lora.registry import AdapterError
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.folders import write
from tests.engine.making import answers, chat, engine_of
from tests.lora.adapters import save_adapter

CORES = sorted(os.sched_getaffinity(0))
SHARES = [(CORES[0],), (CORES[-1],)]
OPTIONS = {"kv_mib": 16, "block": 4, "running": 4, "waiting": 4}
ROOT = Path(__file__).resolve().parents[2]
LONG_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    with torch.no_grad():
        write("smolvlm", path)
    return path


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Replicas]:
    """For tests that lose no process."""
    with closing(started(folder)) as made:
        yield made


def started(folder: Path, **others: int) -> Replicas:
    return Replicas.start(folder, "float32", EngineOptions(**OPTIONS | others), SHARES)  # type: ignore[arg-type]


def ignored(_: Delta) -> None: ...


def asked(replicas: Replicas, text: str, tokens: int, **others: object) -> VlmRequest:
    prompt = chat(replicas.checkpoint, text, [(40, 60)] if "picture" in text else [])
    return VlmRequest(prompt, max_tokens=tokens, ignore_eos=True, **others)  # type: ignore[arg-type]


def endless(replicas: Replicas) -> VlmRequest:
    return asked(replicas, "on and on", 4000)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_they_answer_as_one_engine(folder: Path, shared: Replicas) -> None:
    """With and without an image, greedy and by a seed, with log probabilities; each replica has its part."""
    requests = [
        asked(shared, text, 8 + place, logprobs=2, seed=7, sampling=Sampling(temperature=place % 2))
        for place, text in enumerate(["a picture", "left", "this picture", "right", "up", "that picture"])
    ]
    with closing(engine_of(folder, **OPTIONS)) as engine:
        wanted = answers(engine, requests)
    heard: list[list[Delta]] = [[] for _ in requests]
    replies = [shared.submit(request, pieces.append) for request, pieces in zip(requests, heard, strict=True)]
    found = [reply.result(LONG_S) for reply in replies]
    assert [each.ids for each in found] == [each.ids for each in wanted]
    assert [each.text for each in found] == [each.text for each in wanted]
    assert all(each.tokens[0].top and each.finish == "length" for each in found)
    for answer, pieces in zip(found, heard, strict=True):
        assert "".join(piece.text for piece in pieces) == answer.text
        assert [token for piece in pieces for token in piece.tokens] == list(answer.tokens)
        assert pieces[-1].answer is answer
    until(lambda: shared.snapshot().stats.ended["length"] == len(requests))
    one, other = (each.snapshot() for each in shared._replicas)
    assert one.stats.ended["length"] > 0 < other.stats.ended["length"]
    whole = shared.snapshot()
    assert (whole.open, whole.running, whole.waiting, whole.blocks_in_use, whole.failure) == (0, 0, 0, 0.0, "")
    assert whole.stats.images + whole.stats.image_hits == 3


def test_what_an_engine_refuses_is_refused_with_its_words(shared: Replicas) -> None:
    with pytest.raises(InvalidRequestError, match=r"^max_tokens: 100000 and the prompt's"):
        shared.submit(asked(shared, "too much", 100000), ignored)
    replies = [shared.submit(endless(shared), ignored) for _ in range(shared.capacity)]
    with pytest.raises(EngineFullError, match="the engine is full: 8 requests run or wait, 8 at most"):
        shared.submit(endless(shared), ignored)
    for each in replies:
        each.cancel()
    assert {each.result(LONG_S).finish for each in replies} == {"cancelled"}
    assert shared.open == 0


def test_both_may_stop_for_a_while(shared: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a debugger, a suspended machine or a benchmark does: nothing is lost."""
    monkeypatch.setattr(module, "LOOK_S", 0.2)
    first = shared._replicas[0]
    assert first._process.pid is not None
    os.kill(first._process.pid, signal.SIGSTOP)
    time.sleep(0.6)  # some looks, fewer than are allowed
    os.kill(first._process.pid, signal.SIGCONT)
    assert first.submit(asked(shared, "left", 4), ignored).result(LONG_S).finish == "length"
    assert not first.failure


def test_a_process_that_ends_takes_its_own_requests_alone(folder: Path) -> None:
    with closing(started(folder)) as replicas:
        heard = list[Delta]()
        doomed = replicas.submit(endless(replicas), heard.append)
        other = replicas.submit(asked(replicas, "left", 40), ignored)
        until(lambda: len(heard) > 3)
        first, second = replicas._replicas
        first._process.kill()
        failed = doomed.result(LONG_S)
        assert (failed.finish, failed.detail) == ("error", "replica 0: its process has ended")
        assert heard[-1].finish == "error"
        lost = first.snapshot()
        assert (lost.open, lost.running, lost.blocks_in_use, lost.stats.ended["error"]) == (0, 0, 0.0, 1)
        assert other.result(LONG_S).finish == "length"
        assert (replicas.failure, replicas.open) == ("", 0)
        after = [replicas.submit(asked(replicas, "up", 4), ignored) for _ in range(3)]
        assert {each.result(LONG_S).finish for each in after} == {"length"}
        second._process.kill()
        until(lambda: bool(replicas.failure))
        with pytest.raises(EngineClosedError, match="the engine failed: replica 0: its process has ended"):
            replicas.submit(asked(replicas, "up", 4), ignored)


def test_a_process_that_stops_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.3)
    monkeypatch.setattr(module, "SILENT", 4)
    with closing(started(folder)) as replicas:
        heard = list[Delta]()
        reply = replicas.submit(endless(replicas), heard.append)
        until(lambda: len(heard) > 3)
        process = replicas._replicas[0]._process
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert reply.result(LONG_S).detail == "replica 0: it has said nothing for 1.2 s"
        process.join(LONG_S)
        assert process.exitcode == -signal.SIGKILL


def test_closing_ends_requests_as_cancelled_and_processes(folder: Path) -> None:
    replicas = started(folder)
    heard = list[Delta]()
    reply = replicas.submit(endless(replicas), heard.append)
    until(lambda: len(heard) > 3)
    replicas.close()
    assert reply.result(LONG_S) == Answer("", (), "cancelled", "the engine is closed", reply.result().usage)
    for each in replicas._replicas:
        each._process.join(LONG_S)
        assert not each._process.is_alive()
    with pytest.raises(EngineClosedError, match="the engine is closed"):
        replicas.submit(endless(replicas), ignored)
    replicas.close()


def test_an_engine_that_fails_is_lost_with_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that the engine's thread cannot stand: its own checks are taken away."""
    with closing(started(folder)) as replicas:
        request = asked(replicas, "left", 4)
        object.__setattr__(request, "deadline_ms", "soon")  # its product fails in the engine's thread
        reply = replicas.submit(request, ignored)
        answer = reply.result(LONG_S)
        assert answer.finish == "error"
        assert "TypeError" in answer.detail
        until(lambda: bool(replicas._replicas[0].failure))
        assert not replicas.failure


def test_a_listener_that_fails_cancels_its_request_alone(shared: Replicas) -> None:
    def fails(_: Delta) -> None:
        raise KeyError("gone")

    reply = shared.submit(endless(shared), fails)
    assert reply.result(LONG_S).finish == "cancelled"
    assert shared.submit(asked(shared, "left", 4), ignored).result(LONG_S).finish == "length"


def test_what_keeps_it_from_starting_is_raised(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"lane 'replica': cores \[9999\] are not available here"):
        Replicas.start(folder, "float32", EngineOptions(), [(CORES[0],), (9999,)])
    with pytest.raises(ValueError, match="kv_mib: 1 MiB do not hold a block"):
        Replicas.start(folder, "float32", EngineOptions(kv_mib=1, block=1 << 20), SHARES)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Replicas.start(tmp_path, "float32", EngineOptions(), SHARES)


def test_they_end_with_the_process_that_started_them(folder: Path) -> None:
    script = f"""if __name__ == "__main__":
    import os, signal
    from pathlib import Path
    from auras_ros.engine.options import EngineOptions
    from auras_ros.engine.replicas import Replicas
    made = Replicas.start(Path({str(folder)!r}), "float32", EngineOptions(kv_mib=8), [({CORES[0]},)])
    print(made._replicas[0]._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    file = folder.parent / "starts.py"
    file.write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    number = int(ran.stdout)
    until(lambda: not _runs(number))


def _runs(pid: int) -> bool:
    """A process without a parent that waits for it may stay as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="module")
def adapters(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two, and one with a task head."""
    from transformers import AutoModelForImageTextToText

    model, root = AutoModelForImageTextToText.from_pretrained(folder), tmp_path_factory.mktemp("adapters")
    made = {name: save_adapter(root / name, model, seed=seed) for seed, name in enumerate(("left", "right", "class"))}
    labels = ["car", "tree"]
    (made["class"] / "task_head.json").write_text(json.dumps({"kind": "classification", "labels": labels}))
    weight = torch.randn(2, 48, generator=torch.Generator().manual_seed(0))
    save_file({"weight": weight, "bias": torch.zeros(2)}, made["class"] / "task_head.safetensors")
    return made


@pytest.fixture(scope="module")
def adapted(folder: Path, adapters: dict[str, Path]) -> Iterator[Replicas]:
    """For tests that lose no process."""
    with closing(started(folder, max_loras=2, max_lora_rank=4)) as made:
        for name, path in adapters.items():
            made.add_adapter(name, path)
        yield made


def on_each(replicas: Replicas, request: VlmRequest) -> list[Answer]:
    """What every replica answers by itself."""
    return [each.submit(request, ignored).result(LONG_S) for each in replicas._replicas]


def test_every_replica_has_every_adapter(folder: Path, adapters: dict[str, Path], adapted: Replicas) -> None:
    """Heads too: their results come through the pipe."""
    assert adapted.adapter_names() == ["class", "left", "right"]
    with closing(engine_of(folder, **OPTIONS, max_loras=2, max_lora_rank=4)) as engine:
        engine.start()
        for name, path in adapters.items():
            engine.add_adapter(name, path)
        for name in ("", *adapters):
            request = asked(adapted, "how many", 6, adapter=name)
            wanted = engine.submit(request).result(LONG_S)
            for found in on_each(adapted, request):
                assert (found.ids, found.text, found.result) == (wanted.ids, wanted.text, wanted.result)
        assert (wanted.result is not None, wanted.ids) == (True, [])


def test_what_a_replica_refuses_of_an_adapter_is_raised(
    adapted: Replicas, adapters: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"adapter_config\.json: file not found"):
        adapted.add_adapter("absent", tmp_path)
    with pytest.raises(AdapterError, match="'left' is there already"):
        adapted.add_adapter("left", adapters["right"])
    with pytest.raises(AdapterError, match="there is no 'absent'; there are: class, left, right"):
        adapted.remove_adapter("absent")
    with pytest.raises(InvalidRequestError, match="adapter: there is no 'absent'"):
        adapted.submit(asked(adapted, "left", 4, adapter="absent"), ignored)
    with pytest.raises(InvalidRequestError, match="head: adapter 'left' has no task head"):
        adapted.submit(asked(adapted, "left", 4, adapter="left", head=True), ignored)
    assert adapted.adapter_names() == ["class", "left", "right"]


def test_an_adapter_that_one_replica_refuses_is_in_none(adapted: Replicas, adapters: dict[str, Path]) -> None:
    """The other one has a name of its own that is in the way."""
    first, second = adapted._replicas
    assert second.change(AddAdapter("taken", adapters["right"])).result(LONG_S) is None
    with pytest.raises(AdapterError, match="'taken' is there already"):
        adapted.add_adapter("taken", adapters["left"])
    assert adapted.adapter_names() == ["class", "left", "right"]
    with pytest.raises(InvalidRequestError, match="there is no 'taken'"):
        first.submit(asked(adapted, "left", 4, adapter="taken"), ignored)
    assert second.change(RemoveAdapter("taken")).result(LONG_S) is None


def test_an_adapter_is_removed_while_its_answer_comes(adapted: Replicas, adapters: dict[str, Path]) -> None:
    adapted.add_adapter("once", adapters["left"])
    heard = list[Delta]()
    reply = adapted.submit(asked(adapted, "on and on", 400, adapter="once"), heard.append)
    until(lambda: len(heard) > 3)
    adapted.remove_adapter("once")
    with pytest.raises(InvalidRequestError, match="there is no 'once'"):
        adapted.submit(asked(adapted, "left", 4, adapter="once"), ignored)
    assert reply.result(LONG_S).finish == "length"


def test_adapters_go_on_where_a_process_was_lost(folder: Path, adapters: dict[str, Path]) -> None:
    with closing(started(folder, max_loras=2, max_lora_rank=4)) as replicas:
        replicas.add_adapter("left", adapters["left"])
        first, second = replicas._replicas
        (wanted, _) = on_each(replicas, asked(replicas, "how many", 6, adapter="left"))
        first._process.kill()
        until(lambda: bool(first.failure))
        assert isinstance(first.change(RemoveAdapter("left")).result(LONG_S), EngineClosedError)
        replicas.add_adapter("right", adapters["right"])
        assert replicas.adapter_names() == ["left", "right"]
        for _ in range(2):
            request = asked(replicas, "how many", 6, adapter="left")
            assert replicas.submit(request, ignored).result(LONG_S).ids == wanted.ids
        second._process.kill()
        with pytest.raises(EngineClosedError, match="the engine failed: replica 0"):
            replicas.remove_adapter("right")


def test_replicas_without_memory_for_adapters_say_so(shared: Replicas, adapters: dict[str, Path]) -> None:
    with pytest.raises(AdapterError, match=r"adapter: this engine takes none \(max_loras\)"):
        shared.add_adapter("left", adapters["left"])
    assert shared.adapter_names() == []
