"""The assembler: a complete observation or one named fault, and never anything invented."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.observation import Assembler, FaultName, Observation, ObservationFault, ObservationSpec, Stamped
from auras_ros.observation.state import JointSlot

MS = 1_000_000


def assembler(spec: ObservationSpec) -> Assembler:
    return Assembler(spec, camera_age_limit_ms=200, state_age_limit_ms=150, sync_tolerance_ms=30)


def latched(source: Assembler, now_ms: float) -> Observation:
    result = source.latch(int(now_ms * MS))
    assert isinstance(result, Observation), result
    return result


def fault(source: Assembler, now_ms: float) -> tuple[FaultName, str]:
    result = source.latch(int(now_ms * MS))
    assert isinstance(result, ObservationFault)
    return result.name, result.source


def put(source: Assembler, make: SimpleNamespace, at_ms: int, value: int, *cameras: str) -> None:
    """Camera frames and a state, all stamped and received at one time."""
    for name in cameras or ("top",):
        assert source.put_image(name, make.frame(value), at_ms * MS, at_ms * MS) is None
    assert source.put_state(["j2", "j1"], [value / 10, value], at_ms * MS, at_ms * MS) is None


def test_one_instant(make: SimpleNamespace) -> None:
    source = assembler(make.spec(("left", "right"), scale=1.0))
    source.put_image("left", make.frame(1), 1000, 50 * MS, latency_ns=10 * MS)
    source.put_image("right", make.frame(2), 900, 40 * MS, latency_ns=-5)
    source.put_state(["j2", "x", "j1"], [0.2, 9.0, 0.1], 1100, 51 * MS)
    result = latched(source, 60)
    assert result.images.shape == (1, 2, 3, 4, 6)
    assert result.images.dtype == np.float32
    assert result.images[0, :, 0, 0, 0].tolist() == [1.0, 2.0]
    assert result.state.tolist() == np.float32([[0.1, 0.2]]).tolist()
    assert result.position.tolist() == [0.1, 0.2]
    assert (result.origin_stamp_ns, result.origin_mono_ns) == (900, 40 * MS)
    assert result.camera_stamps == ((1000, 900),)
    assert result.state_stamp_ns == 1100


def test_a_missing_stream_is_a_fault_and_never_zeros(make: SimpleNamespace) -> None:
    source = assembler(make.spec(("left", "right")))
    assert fault(source, 0) == (FaultName.MISSING, "left")
    source.put_image("left", make.frame(), 0, 0)
    assert fault(source, 0) == (FaultName.MISSING, "right")
    source.put_image("right", make.frame(), 0, 0)
    assert fault(source, 0) == (FaultName.MISSING, "state")
    source.put_state(["j1", "j2"], [0, 0], 0, 0)
    latched(source, 0)
    assert source.counters()["faults"] == {"missing": 3}


def test_each_stream_has_its_age_limit(make: SimpleNamespace) -> None:
    source = assembler(make.spec())
    put(source, make, 0, 1)
    latched(source, 150)
    assert fault(source, 151) == (FaultName.STALE, "state")
    source.put_state(["j1", "j2"], [0, 0], 1, 200 * MS)
    latched(source, 200)
    assert fault(source, 201) == (FaultName.STALE, "top")


def test_cameras_too_far_apart_are_a_fault(make: SimpleNamespace) -> None:
    source = assembler(make.spec(("left", "right"), state=False))
    source.put_image("left", make.frame(), 0, 0)
    source.put_image("right", make.frame(), 31 * MS, 0)
    assert fault(source, 1) == (FaultName.SKEW, "left")
    source.put_image("left", make.frame(), 1 * MS, 1)
    assert latched(source, 1).origin_stamp_ns == 1 * MS


def test_what_is_refused_is_counted_and_changes_nothing(make: SimpleNamespace) -> None:
    source = assembler(make.spec(scale=1.0))
    put(source, make, 100, 7)

    def refused(result: ObservationFault | None) -> tuple[FaultName, str]:
        assert result is not None
        return result.name, result.source

    late, now = 50 * MS, 110 * MS
    big = make.frame(0, 5, 6)
    assert refused(source.put_image("top", big, now, now)) == (FaultName.BAD_SIZE, "top")
    assert refused(source.put_image("rear", make.frame(), now, now)) == (FaultName.UNKNOWN_SOURCE, "rear")
    assert refused(source.put_image("top", make.frame(9), late, now)) == (FaultName.BACKWARDS, "top")
    assert refused(source.put_state(["j1", "j1"], [1.0, 1.0], now, now)) == (FaultName.BAD_STATE, "j1")
    nan = [np.nan, 0.0]
    assert refused(source.put_state(["j1", "j2"], nan, now, now)) == (FaultName.NON_FINITE, "j1")
    assert refused(source.put_state(["j1", "j2"], [0, 0], late, now)) == (FaultName.BACKWARDS, "state")
    decoding = ObservationFault(FaultName.TOO_LARGE, "data", "60000 x 60000")
    assert source.count(decoding) is decoding
    result = latched(source, 111)
    assert result.images[0, 0, 0, 0, 0] == 7.0
    assert result.position.tolist() == [7.0, 0.7]
    counters = source.counters()
    assert counters["faults"] == {
        "bad_size": 1, "unknown_source": 1, "backwards": 2, "bad_state": 1, "non_finite": 1, "too_large": 1
    }  # fmt: skip
    assert counters["streams"]["top"] == {"received": 2, "repeated": 0, "backwards": 1, "future": 0}
    assert counters["streams"]["state"]["received"] == 2


def test_a_repeated_frame_grows_stale(make: SimpleNamespace) -> None:
    source = assembler(make.spec(state=False))
    for now_ms in range(0, 300, 10):
        source.put_image("top", make.frame(), 5, now_ms * MS)
    assert fault(source, 290) == (FaultName.STALE, "top")


def test_history_repeats_the_first_then_follows_the_steps(make: SimpleNamespace) -> None:
    source = assembler(make.spec(history=3, scale=1.0))
    seen = []
    for step in range(5):
        put(source, make, 100 * step, step)
        result = latched(source, 100 * step)
        seen.append(result.images[:, 0, 0, 0, 0].tolist())
        assert result.state[:, 0].tolist() == seen[-1]
        assert result.camera_stamps[-1] == (100 * step * MS,)
        assert result.origin_stamp_ns == 100 * step * MS
    assert seen == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_history_is_spaced_by_the_policys_step_whatever_the_rates(make: SimpleNamespace) -> None:
    """A camera at 30 Hz, and frames so long that only one observation in ten is latched."""
    source = assembler(make.spec(history=2, scale=1.0))
    for k in range(61):
        put(source, make, 33 * k, k)
        if k % 10 == 0:
            stamps = [s[0] // MS for s in latched(source, 33 * k).camera_stamps]
            assert stamps == ([0, 0] if k == 0 else [33 * (k - 3), 33 * k])


def test_history_is_spaced_by_stamps_in_a_slow_simulation(make: SimpleNamespace) -> None:
    source = Assembler(make.spec(state=False, history=2, scale=1.0), 5000, 5000, 30)
    for step in range(4):
        source.put_image("top", make.frame(step), 100 * step * MS, 1700 * step * MS)
    assert latched(source, 5200).images[:, 0, 0, 0, 0].tolist() == [2.0, 3.0]


def test_the_state_is_the_one_beside_the_image(make: SimpleNamespace) -> None:
    """As in training: not the newest, where the camera lags behind."""
    source = assembler(make.spec())
    for at_ms in range(0, 200, 10):
        source.put_state(["j1", "j2"], [at_ms, 0], at_ms * MS, at_ms * MS)
    source.put_image("top", make.frame(), 102 * MS, 190 * MS)
    result = latched(source, 195)
    assert result.position[0] == pytest.approx(102, abs=100 / 8)
    assert result.state_stamp_ns == result.position[0] * MS


def test_a_state_in_a_clock_of_its_own_gives_the_newest(make: SimpleNamespace) -> None:
    source = assembler(make.spec())
    for at_ms in range(0, 50, 10):
        source.put_state(["j1", "j2"], [at_ms, 0], 10**18 + at_ms * MS, at_ms * MS)
    source.put_image("top", make.frame(), 40 * MS, 40 * MS)
    assert latched(source, 50).position[0] == 40.0


def test_reset_begins_anew(make: SimpleNamespace) -> None:
    source = assembler(make.spec(history=2, scale=1.0))
    put(source, make, 500, 5)
    put(source, make, 600, 6)
    latched(source, 600)
    source.reset()
    assert fault(source, 600) == (FaultName.MISSING, "top")
    put(source, make, 600, 1)
    assert latched(source, 600).images[:, 0, 0, 0, 0].tolist() == [1.0, 1.0], "nothing of before, cached or not"
    put(source, make, 700, 2)
    assert latched(source, 700).images[:, 0, 0, 0, 0].tolist() == [1.0, 2.0]


def test_a_reset_while_a_frame_is_preprocessed_leaves_nothing_of_it(
    make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stamps start again after a reset: another frame may carry the very stamp of the one before."""
    source = assembler(make.spec(state=False, scale=1.0))
    inner = source.preprocess.image

    def image(name: str, frame: Any) -> Any:
        source.reset()
        return inner(name, frame)

    source.put_image("top", make.frame(1), 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(source.preprocess, "image", image)
        latched(source, 0)
    source.put_image("top", make.frame(2), 0, 0)
    assert latched(source, 0).images.max() == 2.0


def test_each_frame_is_preprocessed_once(make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    source = assembler(make.spec(history=2))
    inner, calls = source.preprocess.image, []

    def image(name: str, frame: Any) -> Any:
        calls.append(name)
        return inner(name, frame)

    monkeypatch.setattr(source.preprocess, "image", image)
    for step in range(4):
        put(source, make, 100 * step, step)
        latched(source, 100 * step)
        latched(source, 100 * step)
    assert len(calls) == 4


def test_parts_of_the_state_are_joined_and_as_old_as_the_oldest(make: SimpleNamespace) -> None:
    """Each joint has its own stamp and receipt; what stands still of one makes the whole no younger."""
    source = assembler(make.spec())
    source.put_image("top", make.frame(), 100 * MS, 100 * MS)
    assert source.put_state(["j9"], [np.nan], 0, 0) is None, "nobody asks for it"
    assert fault(source, 100) == (FaultName.MISSING, "state")
    assert source.put_state(["j1"], [1.0], 90 * MS, 90 * MS) is None
    assert fault(source, 100) == (FaultName.MISSING_JOINT, "state")
    assert source.put_state(["j2"], [2.0], 80 * MS, 95 * MS, latency_ns=5 * MS) is None
    result = latched(source, 100)
    assert (result.position.tolist(), result.state_stamp_ns) == ([1.0, 2.0], 80 * MS)
    for at_ms in range(100, 250, 10):
        source.put_image("top", make.frame(), at_ms * MS, at_ms * MS)
        source.put_state(["j1"], [1.5], at_ms * MS, at_ms * MS)
        source.put_state(["j2"], [9.0], 80 * MS, at_ms * MS)  # the one before, again
    assert latched(source, 240).position.tolist() == [1.5, 2.0]
    assert fault(source, 241) == (FaultName.STALE, "state")
    source.put_state(["j2", "j1"], [2.5, 9.0], 240 * MS, 250 * MS)  # of j1 that was told before
    assert latched(source, 250).position.tolist() == [1.5, 2.5]
    source.reset()
    source.put_image("top", make.frame(), 0, 250 * MS)
    source.put_state(["j2"], [2.5], 0, 250 * MS)
    assert fault(source, 250) == (FaultName.MISSING_JOINT, "state"), "nothing of before"


@given(st.lists(st.tuples(st.sets(st.sampled_from(["j1", "j2"]), min_size=1), st.integers(0, 5)), max_size=20))
def test_no_joint_is_older_than_its_state_says(parts: list[tuple[set[str], int]]) -> None:
    """However parts come: the state holds what each joint was told of last, by its stamps, and its age is the
    oldest's."""
    slot, expected = JointSlot("state", ["j1", "j2"], 1e9), dict[str, int]()
    for joints, stamp in parts:
        if all(stamp >= expected.get(joint, 0) for joint in joints):
            expected.update(dict.fromkeys(joints, stamp))
        slot.put_part({joint: float(stamp) for joint in joints}, stamp, stamp)
    found = slot.latest(0)
    if len(expected) == 2:
        assert isinstance(found, Stamped)
        assert found.item.tolist() == [expected["j1"], expected["j2"]]
        assert found.stamp_ns == found.mono_ns == min(expected.values())
    else:
        assert isinstance(found, ObservationFault)


def test_only_state_or_only_cameras(make: SimpleNamespace) -> None:
    source = assembler(make.spec((), history=2))
    source.put_state(["j1", "j2"], [1, 2], 5, 6)
    result = latched(source, 0)
    assert (result.images.shape, result.state.shape) == ((2, 0, 3, 0, 0), (2, 2))
    assert (result.origin_stamp_ns, result.origin_mono_ns, result.camera_stamps) == (5, 6, ((), ()))
    source = assembler(make.spec(state=False))
    source.put_image("top", make.frame(), 0, 0)
    assert source.put_state(["j9"], [np.nan], 0, 0) is None, "nobody asks for it"
    result = latched(source, 0)
    assert (result.state.shape, result.position.shape, result.state_stamp_ns) == ((1, 0), (0,), None)


def test_an_observation_does_not_change_afterwards(make: SimpleNamespace) -> None:
    source = assembler(make.spec(scale=1.0))
    put(source, make, 0, 1)
    first = latched(source, 0)
    put(source, make, 100, 2)
    second = latched(source, 100)
    second.position[:] = 9
    assert (first.images.max(), first.state[0, 0], first.position[0]) == (1.0, 1.0, 1.0)
    assert latched(source, 100).position[0] == 2.0


def test_puts_and_latches_from_two_threads(make: SimpleNamespace) -> None:
    """What is latched belongs together: frame and state of one stamp."""
    source = Assembler(make.spec(history=2, scale=1.0), 1e9, 1e9, 30)
    put(source, make, 0, 0)
    done = threading.Event()
    frames = [make.frame(value) for value in range(200)]

    def write() -> None:
        k = 0
        while not done.is_set():
            k += 1
            source.put_image("top", frames[k % 200], k * 100 * MS, 0)
            source.put_state(["j1", "j2"], [k % 200, 0], k * 100 * MS, 0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            result = latched(source, 0)
            newest = result.camera_stamps[-1][0] // (100 * MS)
            assert result.images[-1, 0, 0, 0, 0] == newest % 200
            assert abs((result.state_stamp_ns or 0) - result.camera_stamps[-1][0]) <= 100 * MS
    finally:
        done.set()
        writer.join()
