"""Questions and images go in over topics, answers come out with where they come from."""

from __future__ import annotations

import json
import time
from typing import Any

from auras_ros.ros.msg import String
from tests.nodes.vlm.conftest import TEXT, Bench

NOTHING = "{0}: missing: nothing received yet; /watch publishes /camera/{0}/image_raw and is silent"

MS = 1_000_000


def test_an_answer_says_which_image_it_is_about_and_how_old_that_is(bench: Bench) -> None:
    bench.fresh()
    bench.image(stamp_ns=time.time_ns() - 500 * MS)
    stamp_ns = bench.image(stamp_ns=time.time_ns() - 200 * MS)
    answer = bench.answer(bench.ask(camera="top"))
    assert answer["finish"] in ("stop", "length")
    assert (answer["question"], answer["standing"], answer["detail"]) == (TEXT, "", "")
    image = answer["image"]
    assert (image["camera"], image["stamp_ns"]) == ("top", stamp_ns)
    assert 200 <= image["age_asked_ms"] <= image["age_start_ms"] <= image["age_end_ms"]
    assert image["age_end_ms"] <= (time.time_ns() - stamp_ns) / MS + 1
    configured: Any = bench.node.status.configured
    assert answer["model"] == {"name": "tiny", "digest": configured.engine.checkpoint.digest}
    assert answer["session"] == bench.node.status.session
    assert 0 < answer["tokens"]["answer"] <= 4
    times = answer["timings_ms"]
    assert times["vision"] > 0
    assert times["prefill"] > 0
    assert times["vision"] + times["prefill"] <= times["first_token"] <= times["total"]


def test_the_answer_is_the_engines_own_for_that_image(bench: Bench) -> None:
    """The same pixels, asked without topics: RGB, the system's words first, then the image, then the text."""
    from auras_ros.engine.request import VlmRequest

    bench.fresh(system="the block is red")
    bench.image()
    answer = bench.answer(bench.ask(camera="top", max_tokens=8))
    configured: Any = bench.node.status.configured
    checkpoint, pixels = configured.engine.checkpoint, configured.cameras.newest("top").item()
    assert pixels.shape == (48, 64, 3)
    turns = [{"role": "system", "content": "the block is red"}]
    turns += [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": TEXT}]}]  # type: ignore[dict-item]
    prompt = checkpoint.prompts.chat(turns, [pixels])
    again = configured.engine.submit(VlmRequest(prompt, checkpoint.sampling, max_tokens=8)).result()
    assert (again.text, len(prompt.ids)) == (answer["text"], answer["tokens"]["prompt"])


def test_a_question_without_a_camera_is_about_no_image(bench: Bench) -> None:
    bench.fresh()
    answer = bench.answer(bench.ask())
    assert answer["image"] is None
    assert (answer["finish"] in ("stop", "length"), answer["timings_ms"]["vision"]) == (True, 0)


def test_a_plain_text_is_about_the_camera_of_the_parameters(bench: Bench) -> None:
    bench.fresh(camera="side")
    bench.image("side")
    answer = bench.next_answer(lambda: bench.ask(text=TEXT))
    assert (answer["question"], answer["image"]["camera"]) == (TEXT, "side")
    assert len(answer["id"]) == 12
    assert bench.answer(bench.ask(camera=""))["image"] is None


def test_pieces_join_to_the_whole_and_come_only_where_they_are_wanted(bench: Bench) -> None:
    bench.fresh()
    quiet, loud = bench.ask(stream=False, max_tokens=12), bench.ask(max_tokens=12)
    answers = [bench.answer(quiet), bench.answer(loud)]
    bench.watch.until(lambda: bench.pieces[-1:] and bench.pieces[-1]["finish"], "the last piece")
    pieces = [piece for piece in bench.pieces if piece["id"] == loud]
    assert quiet not in {piece["id"] for piece in bench.pieces}
    assert [piece["index"] for piece in pieces] == list(range(len(pieces)))
    assert "".join(piece["text"] for piece in pieces) == answers[1]["text"]
    assert pieces[-1]["finish"] == answers[1]["finish"]
    assert answers[0]["text"] == answers[1]["text"]


def test_an_answer_ends_when_its_time_is_over_or_its_image_too_old(bench: Bench) -> None:
    bench.fresh(max_age_ms=400.0)
    bench.image()
    bench.gate.close()
    by_age, by_deadline = bench.ask(camera="top"), bench.ask(deadline_ms=1.0)
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    asked_s = time.monotonic()
    bench.watch.until(lambda: time.monotonic() - asked_s > 0.5, "the time is over")
    bench.gate.open()
    for name in (by_age, by_deadline):
        assert bench.answer(name)["finish"] == "deadline"
    assert bench.answer(by_age)["image"]["age_end_ms"] >= 400


def test_deactivated_it_cancels_and_says_nothing_more(bench: Bench) -> None:
    bench.fresh()
    bench.gate.close()
    name = bench.ask()
    bench.watch.until(bench.gate.waits.is_set, "an answer under way")
    bench.node.trigger_deactivate()
    answer = bench.answer(name)
    assert (answer["finish"], answer["detail"]) == ("cancelled", "the node was deactivated")
    bench.gate.open()
    after = bench.next_answer(bench.ask)  # what follows the cancelled one
    assert (after["finish"], after["detail"]) == ("refused", "the node is inactive")
    bench.node.trigger_activate()
    bench.watch.until(lambda: bench.node.status.configured.engine.running == 0, "no request is left")  # type: ignore[union-attr]
    assert bench.answer(bench.ask())["finish"] in ("stop", "length")
    assert [each["id"] for each in bench.answers].count(name) == 1


def test_every_answer_is_one_line_with_the_same_keys(bench: Bench) -> None:
    bench.fresh()
    bench.image()
    lines: list[str] = []
    heard = bench.watch.node.create_subscription(String, "answer", lambda m: lines.append(m.data), 10)
    topic = bench.node._answers._answers
    bench.watch.until(lambda: topic.get_subscription_count() == 2, "another reader")
    for name in (bench.ask(camera="top"), bench.ask(), bench.ask(camera="back")):
        bench.answer(name)
    bench.watch.until(lambda: len(lines) == 3, "all lines")
    bench.watch.node.destroy_subscription(heard)
    assert len({tuple(sorted(json.loads(line))) for line in lines}) == 1
    assert not any("\n" in line for line in lines)


def test_a_video_is_every_second_of_the_newest_images_in_their_order(bench: Bench) -> None:
    asked = {
        "name": "video",
        "text": TEXT,
        "camera": "top",
        "every_frames": 6,
        "frames": 3,
        "stride": 2,
        "max_tokens": 4,
    }
    bench.fresh(standing=json.dumps([asked]))
    stamps = [bench.image() for _ in range(6)]
    image = bench.answer("video/1")["image"]
    assert (image["frames"], image["first_stamp_ns"], image["stamp_ns"]) == (3, stamps[1], stamps[5])
    one = bench.answer(bench.ask(camera="top"))
    video = bench.answer(bench.ask(camera="top", frames=3, stride=2))
    again = bench.answer(bench.ask(camera="top", frames=5))
    assert one["tokens"]["prompt"] < video["tokens"]["prompt"] < again["tokens"]["prompt"]
    assert again["image"]["first_stamp_ns"] == stamps[1]
    assert video["text"] == bench.answer("video/1")["text"]
    refused = bench.answer(bench.ask(camera="top", frames=4, stride=2))
    assert refused["detail"] == "top: missing: 4 frames, each 2 after another, reach back 7; frames_kept is 5"
    assert bench.answer(bench.ask(camera="side", frames=2))["detail"] == NOTHING.format("side")
    bench.image("side")
    assert bench.answer(bench.ask(camera="side", frames=2))["detail"] == "side: missing: 1 of 2 images have come"
