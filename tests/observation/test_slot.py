"""Latest-frame slots: the newest wins, and a frozen stream grows old."""

from __future__ import annotations

import threading

import pytest

from auras_ros.observation import FaultName, LatestSlot, ObservationFault, Stamped
from auras_ros.observation.state import JointSlot

MS = 1_000_000


@pytest.fixture
def slot() -> LatestSlot[str]:
    return LatestSlot("top", age_limit_ms=100)


def held(slot: LatestSlot[str], now_ns: int) -> str:
    entry = slot.latest(now_ns)
    assert isinstance(entry, Stamped), entry
    return entry.item


def fault(slot: LatestSlot[str], now_ns: int) -> ObservationFault:
    entry = slot.latest(now_ns)
    assert isinstance(entry, ObservationFault)
    return entry


def test_an_empty_slot_is_missing(slot: LatestSlot[str]) -> None:
    assert fault(slot, 0) == ObservationFault(FaultName.MISSING, "top", "nothing received yet")


def test_the_newest_wins_and_nothing_queues(slot: LatestSlot[str]) -> None:
    for stamp in range(5):
        slot.put(f"frame {stamp}", stamp, stamp)
    assert held(slot, 5) == "frame 4"
    assert held(slot, 5) == "frame 4"


def test_it_grows_stale_by_the_monotonic_clock(slot: LatestSlot[str]) -> None:
    slot.put("a", 10**18, 5 * MS)
    assert held(slot, 105 * MS) == "a"
    stale = fault(slot, 105 * MS + 1)
    assert (stale.name, stale.source) == (FaultName.STALE, "top")
    assert "limit 100 ms" in stale.detail


def test_latency_before_the_receipt_counts_as_age_and_is_never_negative(slot: LatestSlot[str]) -> None:
    slot.put("a", 1, 50 * MS, latency_ns=30 * MS)
    assert held(slot, 120 * MS) == "a"
    assert fault(slot, 121 * MS).name is FaultName.STALE
    slot.put("b", 2, 200 * MS, latency_ns=-30 * MS)
    entry = slot.latest(200 * MS)
    assert isinstance(entry, Stamped)
    assert entry.mono_ns == 200 * MS


def test_a_repeated_stamp_does_not_make_it_younger(slot: LatestSlot[str]) -> None:
    """Reliability: a camera that repeats one frame leads to a hold."""
    slot.put("a", 7, 0)
    for now_ms in range(0, 200, 10):
        slot.put("a again", 7, now_ms * MS)
    assert held(slot, 100 * MS) == "a"
    assert fault(slot, 101 * MS).name is FaultName.STALE
    assert slot.counters() == {"received": 21, "repeated": 20, "backwards": 0, "future": 0}


def test_a_stamp_that_goes_back_is_refused_until_reset(slot: LatestSlot[str]) -> None:
    slot.put("new", 20 * MS, 0)
    refused = slot.put("old", 10 * MS, 1)
    assert isinstance(refused, ObservationFault)
    assert (refused.name, refused.detail) == (FaultName.BACKWARDS, "stamp went back by 10.000 ms")
    assert held(slot, 2) == "new"
    assert slot.counters()["backwards"] == 1
    slot.reset()
    assert fault(slot, 2).name is FaultName.MISSING
    slot.put("old", 10 * MS, 3)
    assert held(slot, 3) == "old"


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_the_limit_is_a_time(limit: float) -> None:
    with pytest.raises(ValueError, match="age_limit_ms"):
        LatestSlot("top", limit)


def test_two_threads_never_see_half_an_entry() -> None:
    slot: LatestSlot[int] = LatestSlot("n", 1e9)
    slot.put(0, 0, 0)
    done = threading.Event()

    def write() -> None:
        n = 0
        while not done.is_set():
            n += 1
            slot.put(n, n, n)

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    try:
        for _ in range(5000):
            entry = slot.latest(0)
            assert isinstance(entry, Stamped)
            assert entry.item == entry.stamp_ns == entry.mono_ns
            seen.append(entry.item)
    finally:
        done.set()
        writer.join()
    assert seen == sorted(seen)


def believing(ahead_limit_ms: float = 100) -> LatestSlot[str]:
    return LatestSlot("top", age_limit_ms=300, ahead_limit_ms=ahead_limit_ms)


HOUR = 3_600_000 * MS


def test_a_stamp_from_the_future_is_refused_and_blinds_nobody() -> None:
    """One hour ahead, once: what comes later was `backwards` until a reset."""
    slot = believing()
    slot.put("a", 1000 * MS, 0, latency_ns=5 * MS)
    ahead = slot.put("b", 1100 * MS + HOUR, 100 * MS, latency_ns=-HOUR)
    assert isinstance(ahead, ObservationFault)
    assert (ahead.name, ahead.source) == (FaultName.FUTURE, "top")
    assert "3600000 ms ahead" in ahead.detail
    assert "chrony" in ahead.detail
    assert "stamp_ahead_ms" in ahead.detail
    assert isinstance(slot.put("c", 1200 * MS, 200 * MS, latency_ns=5 * MS), Stamped)
    assert held(slot, 200 * MS) == "c"
    assert slot.counters() == {"received": 3, "repeated": 0, "backwards": 0, "future": 1}


def test_a_camera_that_runs_ahead_within_the_limit_is_taken_and_blinds_for_no_longer() -> None:
    slot = believing()
    for at_ms in range(0, 1000, 50):  # constantly 90 ms ahead
        assert isinstance(slot.put("ahead", (at_ms + 90) * MS, at_ms * MS, latency_ns=-90 * MS), Stamped)
    refused = [
        at_ms
        for at_ms in range(1000, 1500, 50)  # then it is set right
        if isinstance(slot.put("right", at_ms * MS, at_ms * MS), ObservationFault)
    ]
    assert refused == [1000]
    assert held(slot, 1500 * MS) == "right"


def test_a_clock_that_was_set_back_is_told_from_a_message_that_comes_late() -> None:
    slot = believing()
    slot.put("before", HOUR + 1000 * MS, 0, latency_ns=5 * MS)
    late = slot.put("late", HOUR + 900 * MS, 50 * MS, latency_ns=155 * MS)  # by the clock of before
    assert isinstance(late, ObservationFault)
    assert late.name is FaultName.BACKWARDS
    set_back = slot.put("after", 1100 * MS, 100 * MS, latency_ns=5 * MS)
    assert isinstance(set_back, ObservationFault)
    assert set_back.name is FaultName.CLOCK_BACK
    slot.reset()
    assert isinstance(slot.put("after", 1100 * MS, 100 * MS, latency_ns=5 * MS), Stamped)


@pytest.mark.parametrize("back_ms", [20, 90, 150, 400, 3_600_000])
def test_after_a_step_back_images_are_taken_again_within_the_limit_and_one_period(back_ms: int) -> None:
    slot, taken = believing(), []
    wall_ns = 2 * HOUR
    for at_ms in range(0, 3000, 50):
        now_ns = wall_ns + at_ms * MS - (back_ms * MS if at_ms >= 1000 else 0)
        got = slot.put("image", now_ns - 5 * MS, at_ms * MS, latency_ns=5 * MS)
        if isinstance(got, ObservationFault) and got.name is FaultName.CLOCK_BACK:
            slot.reset()
            got = slot.put("image", now_ns - 5 * MS, at_ms * MS, latency_ns=5 * MS)
        if isinstance(got, Stamped):
            taken.append(at_ms)
    after = [at_ms for at_ms in taken if at_ms >= 1000]
    assert after[0] <= 1000 + 100 + 50
    assert after == list(range(after[0], 3000, 50))


def test_what_is_too_old_says_whether_nothing_comes_or_its_stamps_are_wrong(slot: LatestSlot[str]) -> None:
    """A stamp of zero was `stale: 1795897585545.9 ms old`."""
    slot.put("a", 0, 1000 * MS, latency_ns=10**18)
    assert fault(slot, 1000 * MS).name is FaultName.UNSTAMPED
    assert fault(slot, 1101 * MS).name is FaultName.STALE, "nothing comes any more"
    slot.reset()
    slot.put("b", 7, 2000 * MS, latency_ns=11_000 * MS)
    assert fault(slot, 2000 * MS).name is FaultName.OTHER_CLOCK
    assert "stamped 11 s behind this host's clock" in fault(slot, 2000 * MS).detail
    slot.reset()
    slot.put("c", 7, 2000 * MS, latency_ns=9_000 * MS)
    assert fault(slot, 2000 * MS).detail.startswith("9000 ms old by its stamp when it comes, limit 100 ms: a slow")
    slot.reset()
    for receipt_ns in range(3000 * MS, 3201 * MS, 50 * MS):
        slot.put("d", 7, receipt_ns)
    assert fault(slot, 3200 * MS).detail.startswith("200.0 ms old, limit 100 ms; it still comes, always with the same")


def test_a_stamp_of_zero_after_others_is_no_stamp(slot: LatestSlot[str]) -> None:
    slot.put("a", 5, 5)
    refused = slot.put("b", 0, 6)
    assert isinstance(refused, ObservationFault)
    assert refused.name is FaultName.UNSTAMPED
    assert slot.counters()["backwards"] == 1


def test_each_joint_has_its_own_cause() -> None:
    slot = JointSlot("state", ("x", "y"), age_limit_ms=100)
    for receipt_ns in range(0, 500 * MS, 50 * MS):
        slot.put_part({"x": 1.0}, 1 + receipt_ns, receipt_ns)
        slot.put_part({"y": 1.0}, 0, receipt_ns, latency_ns=10**18)
    found = slot.latest(500 * MS)
    assert isinstance(found, ObservationFault)
    assert found.name is FaultName.UNSTAMPED
    assert found.detail.startswith("'y' is not stamped")
