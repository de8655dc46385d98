"""The video's frames, the film and the timeline from synthetic data: what must be seen is looked for as pixels."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.live.referee.episode import WorldStatus
from auras_ros.live.referee.film import Film
from auras_ros.live.referee.measures import ActionMark, ChunkTimes, Measures
from auras_ros.live.referee.pictures import (
    GOOD,
    HEIGHT_PX,
    PICTURE_PX,
    PLAN,
    TITLE_PX,
    WIDTH_PX,
    FilmFrame,
    GoalBar,
    draw,
)
from auras_ros.live.referee.pusht_view import CROSS, VIEWER, PushTView
from auras_ros.live.referee.timeline import draw_timeline, first_use_ns, window
from auras_ros.live.referee.video import VideoError, VideoFile, side_by_side
from auras_ros.live.referee.view import CamerasView

MS = 1_000_000
Image = NDArray[np.uint8]


def plain(level: int = 255, side: int = 384) -> Image:
    return np.full((side, side, 3), level, dtype=np.uint8)


PUSHT = PushTView(0.95)


def scene(**changes: object) -> FilmFrame:
    told = {"seed": 3, "step": 9, "state": "armed", "source": "chunk"}
    return FilmFrame(**{"picture": plain(side=PICTURE_PX), **told, **changes})  # type: ignore[arg-type]


def drawn(**changes: object) -> Image:
    """The picture of a frame, in its own coordinates."""
    return picture_of(draw(scene(**changes)))


def picture_of(frame: Image) -> Image:
    return frame[TITLE_PX : TITLE_PX + PICTURE_PX]


def panel_of(frame: Image) -> Image:
    return frame[TITLE_PX + PICTURE_PX :]


def near(image: Image, x: int, y: int, colour: tuple[int, int, int], reach: int = 2) -> bool:
    """Whether the colour stands within `reach` pixels of (x, y), give or take a little."""
    part = image[y - reach : y + reach + 1, x - reach : x + reach + 1].astype(int)
    return bool((np.abs(part - colour).max(axis=2) < 30).any())


# -- a frame ----------------------------------------------------------------------------------------------


def test_a_frame_has_the_views_picture() -> None:
    frame = draw(scene(picture=plain(90, PICTURE_PX)))
    assert frame.shape == (HEIGHT_PX, WIDTH_PX, 3)
    assert frame.dtype == np.uint8
    assert (picture_of(frame) == 90).all()


def test_a_sub_goal_is_a_bar_that_turns_green_when_it_is_reached() -> None:
    def bar(share: float, threshold: float | None) -> Image:
        return panel_of(draw(scene(goals=(GoalBar("goal", share, threshold),))))

    at = 180, 104
    assert near(bar(0.5, 0.95), *at, PLAN)
    assert near(bar(0.96, 0.95), *at, GOOD)
    assert near(bar(0.96, None), *at, PLAN)
    assert near(bar(1.0, None), *at, GOOD)
    assert not near(bar(0.0, 0.95), *at, PLAN)


def test_sub_goals_stand_next_to_each_other_and_long_names_keep_to_their_own() -> None:
    def panel(*names: str) -> Image:
        return panel_of(draw(scene(goals=tuple(GoalBar(name, 1.0) for name in names))))

    assert [near(panel("a", "b", "c"), x, 104, GOOD) for x in (180, 270, 300, 420)] == [True] * 4
    assert not near(panel("a", "b", "c"), 274, 104, GOOD, reach=0)  # between the first and the second
    long = panel("a" * 60, "b") != panel("", "b")
    assert long[80:96, 172:330].any()
    assert not long[80:96, 336:].any()


def test_the_image_that_the_action_answers_and_its_age_stand_below_the_table() -> None:
    panel = panel_of(draw(scene(seen=plain(60), age_ms=500.0)))
    assert (panel[14:150, 14:150] == 60).all()
    middle = 172 + (WIDTH_PX - 14 - 172) // 2
    assert near(panel, middle - 6, 66, PLAN)
    assert not near(panel, middle + 6, 66, PLAN)


def test_every_word_of_the_panel_changes_the_panel() -> None:
    base = panel_of(draw(scene()))
    changes = {
        "seed": 8,
        "step": 10,
        "state": "holding",
        "source": "blend",
        "age_ms": 163.0,
        "request": 7,
    }
    for name, value in {**changes, "successes": 1, "played": 2}.items():
        panel = panel_of(draw(scene(**{name: value})))
        assert (panel != base).any(), name
    assert (draw(scene(title="auras"))[:TITLE_PX] != draw(scene())[:TITLE_PX]).any()


def test_the_verdict_stands_over_the_picture() -> None:
    assert near(drawn(verdict="success"), 300, 20, GOOD)
    assert not near(drawn(verdict="no success in 300 steps"), 300, 20, GOOD)


# -- what is shown of a world -----------------------------------------------------------------------------


def pusht(action: tuple[float, float] | None = None, rest: NDArray[np.float64] | None = None) -> Image:
    return PUSHT.picture([plain()], action, rest)


def test_push_ts_table_fills_its_square_whatever_the_cameras_size() -> None:
    for side in (96, 384, 512):
        assert (PUSHT.picture([plain(90, side)], None, None) == 90).all()


def test_push_ts_goal_has_its_own_name_and_threshold() -> None:
    assert PUSHT.goals({"coverage": 0.5}) == (GoalBar("goal covered", 0.5, 0.95),)


def test_the_active_action_is_a_cross_at_its_place() -> None:
    frame = pusht(action=(200.0, 310.0))
    assert near(frame, 200, 310, CROSS)
    assert near(frame, 208, 318, CROSS)
    assert near(frame, 208, 302, CROSS)
    assert not near(frame, 310, 200, CROSS)  # x and y are not exchanged
    assert (pusht() == 255).all()


def test_the_rest_of_the_chunk_fades_towards_the_horizon() -> None:
    rest = np.array([[100.0 + 60 * i, 400.0 - 50 * i] for i in range(5)])
    frame = pusht(rest=rest)
    levels = [int(frame[round(y), round(x), 2]) for x, y in rest]  # blue: PLAN has little of it, white has all
    assert near(frame, 100, 400, PLAN)
    assert levels == sorted(levels)
    assert levels[-1] - levels[0] > 100
    assert levels[-1] < 250


@pytest.mark.parametrize("far", [-1e9, 1e9, 511.9, 0.0])
def test_actions_beyond_the_picture_are_drawn_or_left_out_without_harm(far: float) -> None:
    frame = pusht(action=(far, far), rest=np.array([[256.0, 256.0], [far, far]]))
    assert near(frame, 256, 256, PLAN)


def test_other_worlds_are_shown_by_their_cameras_the_first_one_large() -> None:
    view = CamerasView(["front", "hand", "side", "top", "fifth"])
    assert view.cameras == ("front", "hand", "side", "top")
    images = [plain(level, 84) for level in (200, 150, 100, 50)]
    picture = view.picture(images, (0.1, 0.2, 0.3), None)
    assert picture.shape == (PICTURE_PX, PICTURE_PX, 3)
    assert (picture[:, :340] == 200).all()
    assert [int(picture[y, 430, 0]) for y in (430, 280, 120, 10)] == [150, 100, 50, 200]  # the others in a corner
    assert (CamerasView(["front"]).picture(images[:1], None, None) == 200).all()


def test_a_picture_that_is_no_square_is_shown_whole() -> None:
    picture = CamerasView(["front"]).picture([plain(200)[:192]], None, None)
    assert (picture[128:384] == 200).all()
    assert not picture[:128].any()
    assert not picture[384:].any()


def test_other_worlds_sub_goals_have_their_names() -> None:
    goals = CamerasView(["front"]).goals({"reach": 0.25, "trash_in_bin": 1.0})
    assert goals == (GoalBar("reach", 0.25), GoalBar("trash in bin", 1.0))


# -- the film ---------------------------------------------------------------------------------------------


class Frames:
    """Keeps what would be written."""

    def __init__(self) -> None:
        self.kept: list[Image] = []

    def write(self, frame: Image) -> None:
        self.kept.append(frame)


def status(stamp_ns: int, step: int = 1, done: bool = False) -> WorldStatus:
    return WorldStatus(0, 0, step, {"coverage": 0.5}, done, done, False, stamp_ns, stamp_ns, (100.0, 100.0))


@pytest.fixture
def film() -> tuple[Film, list[Image]]:
    frames = Frames()
    return Film(frames, PUSHT, "quick", 100.0), frames.kept


@pytest.mark.parametrize("picture_first", [True, False])
def test_picture_and_status_of_one_step_make_a_frame(film: tuple[Film, list[Image]], picture_first: bool) -> None:
    it, frames = film
    if picture_first:
        it.picture(VIEWER, 5, plain(40))
    it.status(status(5), 0, 0)
    if not picture_first:
        assert frames == []
        it.picture(VIEWER, 4, plain(200))  # of another step
        assert frames == []
        it.picture(VIEWER, 5, plain(40))
    assert len(frames) == 1
    assert (picture_of(frames[0])[300:, 300:] == 40).all()


def test_a_lost_picture_is_replaced_by_the_frame_before(film: tuple[Film, list[Image]]) -> None:
    it, frames = film
    it.picture(VIEWER, 1, plain(40))
    it.status(status(1), 0, 0)
    it.status(status(2), 0, 0)
    it.picture(VIEWER, 3, plain(90))
    it.status(status(3), 0, 0)
    assert len(frames) == 3
    assert frames[1] is frames[0]


def test_the_rest_starts_after_the_active_index(film: tuple[Film, list[Image]]) -> None:
    it, frames = film
    it.chunk(7, np.array([[50.0, 400.0], [150.0, 400.0], [250.0, 400.0], [350.0, 400.0]]))
    it.action("armed", "chunk", 1, 100 * MS, 7, 300 * MS)
    it.picture(VIEWER, 1, plain())
    it.status(status(1), 0, 0)
    assert near(picture_of(frames[0]), 250, 400, PLAN)
    assert not near(picture_of(frames[0]), 150, 400, PLAN)


def test_a_disarmed_actuator_has_no_chunk(film: tuple[Film, list[Image]]) -> None:
    it, frames = film
    it.chunk(7, np.array([[50.0, 400.0], [250.0, 400.0]]))
    it.action("armed", "chunk", 0, 100 * MS, 7, 300 * MS)
    it.actuator("disarmed")
    it.picture(VIEWER, 1, plain())
    it.status(status(1), 0, 0)
    assert not near(picture_of(frames[0]), 250, 400, PLAN)


def test_the_end_of_an_episode_is_shown_for_a_second(film: tuple[Film, list[Image]]) -> None:
    it, frames = film
    it.picture(VIEWER, 1, plain())
    it.status(status(1, done=True), 1, 1)
    assert len(frames) == 10
    assert near(picture_of(frames[0]), 300, 20, GOOD)


def test_the_film_shows_the_image_that_the_action_answers(film: tuple[Film, list[Image]]) -> None:
    """By the time of its stamp, up to half a control step away; older ones are not kept, and then none is shown."""
    it, frames = film
    for step in range(1, 6):
        it.picture(VIEWER, 100 * step * MS, plain(10 * step))
        it.action("armed", "chunk", 0, 190 * MS, 7, 100 * step * MS)
        it.status(status(100 * step * MS, step), 0, 0)
    assert (panel_of(frames[4])[14:150, 14:150] == 30).all()
    assert (panel_of(frames[0])[14:150, 14:150] == panel_of(draw(scene()))[14:150, 14:150]).all()


def test_a_frame_waits_for_each_camera_of_its_step() -> None:
    """Pictures of the next step may come before this one's status; at 20 Hz the last frame is shown for a second."""
    frames = Frames()
    it = Film(frames, CamerasView(["front", "hand"]), "quick", 50.0)
    it.picture("front", 1, plain(40))
    it.picture("front", 2, plain(60))
    it.status(status(1), 0, 0)
    assert frames.kept == []
    it.picture("hand", 2, plain(160))
    assert frames.kept == []
    it.picture("hand", 1, plain(140))
    it.status(status(2, done=True), 1, 1)
    assert len(frames.kept) == 1 + 20
    assert [int(picture_of(frame)[430, level, 0]) for frame in frames.kept[:2] for level in (20, 430)] == [
        40,
        140,
        60,
        160,
    ]


def test_the_pictures_memory_may_be_used_again(film: tuple[Film, list[Image]]) -> None:
    it, frames = film
    image = plain(40)
    it.picture(VIEWER, 1, image)
    image[:] = 200
    it.status(status(1), 0, 0)
    assert (picture_of(frames[0])[300:, 300:] == 40).all()


def test_the_video_can_be_read_back(tmp_path: Path) -> None:
    video = VideoFile(tmp_path / "demo.mp4", 10.0, WIDTH_PX, HEIGHT_PX)
    for i in range(12):
        video.write(draw(scene(step=i, picture=pusht((100.0 + 20 * i, 256.0)))))
    with pytest.raises(ValueError, match="video frame"):
        video.write(plain())
    video.close()
    read = cv2.VideoCapture(str(tmp_path / "demo.mp4"))
    assert (read.get(cv2.CAP_PROP_FRAME_WIDTH), read.get(cv2.CAP_PROP_FRAME_HEIGHT)) == (WIDTH_PX, HEIGHT_PX)
    assert read.get(cv2.CAP_PROP_FPS) == 10.0
    frames = 0
    while read.read()[0]:
        frames += 1
    read.release()
    assert frames == 12


def test_a_video_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"nowhere/demo\.mp4"):
        VideoFile(tmp_path / "nowhere" / "demo.mp4", 10.0, WIDTH_PX, HEIGHT_PX)


def test_without_a_frame_no_file_stays(tmp_path: Path) -> None:
    VideoFile(tmp_path / "demo.mp4", 10.0, WIDTH_PX, HEIGHT_PX).close()
    assert list(tmp_path.iterdir()) == []


def test_plays_of_the_same_episodes_stand_next_to_each_other(tmp_path: Path) -> None:
    """Each episode begins on both sides at once; the one that is over shows its last frame."""
    videos = []
    for name, lengths, level in (("seq", {4: 6, 5: 2, 6: 3}, 40), ("auras", {4: 3, 6: 5}, 120)):
        video = VideoFile(tmp_path / f"{name}.mp4", 10.0, 64, 48)
        for length in lengths.values():
            for i in range(length):
                video.write(np.full((48, 64, 3), level + 20 * i, dtype=np.uint8))
        video.close()
        videos.append((video.path, lengths))
    path, still = tmp_path / "both.mp4", tmp_path / "both.png"
    assert side_by_side(videos, path, still)
    read, found = cv2.VideoCapture(str(path)), []
    while (frame := read.read())[0]:
        found.append((int(frame[1][24, 32].mean()), int(frame[1][24, 96].mean())))
    expected = [(40 + 20 * i, 120 + 20 * min(i, 2)) for i in range(6)]
    expected += [(40 + 20 * min(i, 2), 120 + 20 * i) for i in range(5)]
    assert np.abs(np.subtract(found, expected)).max() < 10  # two encoders
    assert cv2.imread(str(still)).shape == (48, 128, 3)
    assert not side_by_side([(videos[0][0], {1: 2}), (videos[1][0], {2: 2})], path, still)
    with pytest.raises(VideoError, match=r"none/demo\.png"):
        side_by_side(videos, path, tmp_path / "none" / "demo.png")
    with pytest.raises(VideoError, match=r"cannot read .*seq\.mp4"):
        side_by_side([(videos[0][0], {4: 1000}), videos[1]], path, still)


# -- the timeline -----------------------------------------------------------------------------------------


def test_the_window_is_the_middle_of_the_middle_episode() -> None:
    second = 1000 * MS
    assert window([]) is None
    assert window([(0, 10 * second)]) == (4 * second, 6 * second)
    assert window([(0, 4 * second), (6 * second, 20 * second)]) == (9 * second, 11 * second)
    assert window([(0, 9 * second), (11 * second, 20 * second)]) == (7 * second, 9 * second)  # never across a gap
    assert window([(0, second), (2 * second, 2 * second + MS)]) == (0, second)  # all short: the longest


def test_first_use_is_of_this_life_of_the_agent() -> None:
    """Requests start again with a new agent: an action before the chunk was made is of another chunk."""
    marks = [ActionMark(10, 1), ActionMark(50, 1), ActionMark(60, 2), ActionMark(70, 1)]
    assert first_use_ns(ChunkTimes(1, 20, 25, 30, 40, 41), marks) == 50
    assert first_use_ns(ChunkTimes(3, 20, 25, 30, 40, 41), marks) is None


def test_the_timeline_shows_the_run(tmp_path: Path) -> None:
    measures = Measures()
    for i in range(60):
        measures.world({"mono_ns": 100 * i * MS, "step": i})
        times = (0, 5, 20, 80, 81)
        stages = ((100 * i - 80) * MS, (100 * i + 20) * MS)
        measures.chunk(ChunkTimes(i, *((100 * i + more) * MS for more in times), stage_ns=stages))
    for i in range(600):
        measures.action(10 * i * MS, i // 10, "chunk", 90 * MS, i)
    measures.pause()
    path = tmp_path / "timeline.png"
    assert draw_timeline({"seq": measures, "auras": measures, "nothing": Measures()}, path)
    image = cv2.imread(str(path))
    assert image is not None
    assert image.shape[1] == 1600
    for red, green, blue in ((0x33, 0x41, 0x5C), (0xE4, 0x57, 0x56), (0x54, 0xA2, 0x4B)):
        found = (np.abs(image.astype(int) - (blue, green, red)).max(axis=2) < 8).sum()
        assert found > 200, f"#{red:02x}{green:02x}{blue:02x}"


def test_without_an_episode_there_is_no_timeline(tmp_path: Path) -> None:
    assert not draw_timeline({"seq": Measures()}, tmp_path / "timeline.png")
    assert not (tmp_path / "timeline.png").exists()
