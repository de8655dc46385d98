"""What `auras eval` reads, from an attacker: reports, work files, durations, options of worlds.

Guards: a pipe or a device that is read without end; a file whose nesting, numbers or missing keys end the command with
a traceback that names nothing; a report of nonsense that is joined with real ones; a line that forges another.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.parts import EvaluationPart
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.work import Work
from auras_ros.measure.durations import FrameDuration
from auras_ros.text_file import MEBIBYTE
from tests.cli.hostile_files import NO_FILES, NO_JSON, check_refused, command

SETTINGS = EvaluationSettings("tiny@1", "quick,pp_generation=2", modes=("seq", "auras"), cores=1).charging(
    {"seq": 0.2, "auras": 0.1}
)
REMOVED = object()
PART = "not a report of `auras eval`"


def outcome() -> ModeResult:
    return ModeResult([EpisodeRecord(0, True, 10, 3, 2), EpisodeRecord(1, False, 300, 30, 20, 1)], [0, 5], [10])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A good one, as it is written."""
    outcomes = {(clock, mode.name): outcome() for clock in SETTINGS.clocks for mode in SETTINGS.contenders()}
    durations = {key: FrameDuration(seconds) for key, seconds in SETTINGS.durations_s.items()}
    path = tmp_path_factory.mktemp("report") / "good.json"
    EvaluationPart(SETTINGS, outcomes, durations).report().write(path)
    assert command("eval", "--merge", path).status == 0
    values: dict[str, Any] = json.loads(path.read_text())
    return values


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    NO_FILES[kind](tmp_path / "report.json")
    check_refused(command("eval", "--merge", tmp_path / "report.json"), "report.json")
    check_refused(command("eval", "--durations", tmp_path / "report.json"), "report.json")


@pytest.mark.parametrize("kind", NO_JSON)
def test_a_file_that_is_no_report_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(NO_JSON[kind])
    check_refused(command("eval", "--merge", path), "report.json", PART)
    check_refused(command("eval", "--durations", path), "report.json", PART)


@pytest.mark.parametrize("kind", NO_JSON)
def test_a_work_file_of_nonsense_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_bytes(NO_JSON[kind])
    with pytest.raises(SettingsError, match=r"work\.json: not a work file of `auras eval`: "):
        Work.open(SETTINGS, path)
    with pytest.raises(SettingsError, match=r"work\.json: not a record of `auras tune`: "):
        EpisodeStore.open({}, path)


CHANGED: dict[str, tuple[tuple[str, ...], Any]] = {
    "no-settings": (("settings",), REMOVED),
    "settings-of-another-type": (("settings",), ["plan"]),
    "an-unknown-setting": (("settings", "__class__"), 1),
    "no-plan": (("settings", "plan"), REMOVED),
    "a-plan-of-nonsense": (("settings", "plan"), "quick,pp_generation=9" + "9" * 5000),
    "a-plan-that-forges-a-line": (("settings", "plan"), "a\nerror: forged \x1b[2J"),
    "a-world-that-forges-a-line": (("settings", "sim"), "a\nerror: forged \x1b[2J"),
    "a-world-option-of-control-characters": (("settings", "drift_px"), "a\n\x1b[2J"),
    "a-surrogate": (("settings", "drift_px"), "\ud800"),
    "steps-without-end": (("settings", "max_steps"), 10**300),
    "no-steps": (("settings", "max_steps"), 0),
    "steps-of-text": (("settings", "max_steps"), "300"),
    "steps-that-are-no-number": (("settings", "max_steps"), float("nan")),
    "a-frame-of-endless-steps": (("settings", "frame_steps"), 10**300),
    "a-frame-of-a-fraction": (("settings", "frame_steps"), 1.5),
    "negative-concurrency": (("settings", "concurrency"), -1),
    "cores-of-text": (("settings", "cores"), "x"),
    "no-modes": (("settings", "modes"), []),
    "modes-twice": (("settings", "modes"), ["seq", "seq"]),
    "modes-of-lists": (("settings", "modes"), [["seq"]]),
    "clocks-of-nonsense": (("settings", "clocks"), ["sundial"]),
    "infinite-jitter": (("settings", "jitter"), float("inf")),
    "durations-missing": (("settings", "durations_s"), {}),
    "a-duration-missing": (("settings", "durations_s", "seq"), REMOVED),
    "a-negative-duration": (("settings", "durations_s", "seq"), -0.1),
    "a-duration-beyond-all-numbers": (("settings", "durations_s", "seq"), 10**400),
    "a-measured-duration-of-text": (("durations", "seq", "seconds"), "0.2"),
    "a-measured-duration-that-is-no-number": (("durations", "seq", "seconds"), float("nan")),
    "frames-below-zero": (("durations", "seq", "n"), -1),
    "a-duration-of-more-keys": (("durations", "seq", "more"), 1),
    "no-seeds": (("seeds",), REMOVED),
    "seeds-of-5000-digits": (("seeds",), "9" * 5000),
    "seeds-of-text": (("seeds",), "zero one"),
    "more-seeds-than-episodes": (("seeds",), " ".join(map(str, range(100_000)))),
    "a-mode-missing": (("episodes", "paused/seq"), REMOVED),
    "a-mode-too-many": (("episodes", "paused/other"), {}),
    "episodes-of-another-type": (("episodes", "paused/seq"), [1, 2]),
    "a-column-missing": (("episodes", "paused/seq", "steps"), REMOVED),
    "a-column-too-short": (("episodes", "paused/seq", "steps"), "1"),
    "reasons-of-another-type": (("episodes", "paused/seq", "lost"), ["gone"]),
}


def changed(report: Mapping[str, Any], keys: tuple[str, ...], value: Any) -> str:
    values = inner = copy.deepcopy(dict(report))
    for key in keys[:-1]:
        inner = inner[key]
    if value is REMOVED:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return json.dumps(values)


@pytest.mark.parametrize("name", CHANGED)
def test_a_report_of_nonsense_is_refused_by_its_name(name: str, report: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(changed(report, *CHANGED[name]))
    check_refused(command("eval", "--merge", path), "report.json", PART)


def test_a_report_of_too_many_bytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b'{"rows": "' + b"x" * (64 * MEBIBYTE) + b'"}')
    check_refused(command("eval", "--merge", path), "report.json", "more than 67108864 bytes")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--episodes", "9" * 5000], "--episodes"),
        (["--episodes", "-1"], "--episodes"),
        (["--seed", "9" * 400], "seed: must be in"),
        (["--sim", "pusht:drift_px=\x1b"], "drift_px: '\\x1b' is not a value"),
        (["--sim", "pusht:drift_px=["], "drift_px: '[' is not a value"),
        (["--sim", f"pusht:drift_px={'[' * 5000}"], "is not a value"),
        (["--sim", f"pusht:drift_px={'9' * 5000}"], "is not a value"),
        (["--sim", "pusht:drift_px=.inf"], "drift_px"),
        (["--sim", "pusht:drift_px=.nan"], "drift_px"),
        (["--sim", "pusht:drift_px=!!python/object/apply:os.system [true]"], "drift_px"),
        (["--jitter", "nan"], "jitter"),
        (["--frame-steps", "1" * 30], "frame_steps: must be at most 1000000"),
        (["--concurrency", "1" * 30], "concurrency: must be at most 1000000"),
        (["--durations", "seq=nan,auras=inf"], "durations"),
        (["--durations", f"seq={'9' * 5000}"], "durations"),
        (["--plan", "pp_generation=" + "9" * 5000], "pp_generation"),
        (["--modes", ""], "modes"),
        (["--clock", "paused,paused"], "clocks"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_option_of_nonsense_is_refused_by_its_name(words: list[str], said: str) -> None:
    end = command("eval", "--checkpoint", "no/such/folder", *words)
    check_refused(end, said)
    assert end.status == 2
