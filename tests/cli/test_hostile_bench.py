"""What `auras bench` reads, from an attacker: files, folders, numbers, lists.

Guards: a number that no memory holds, and a time that never ends; a pipe or a device in place of a file; a traceback in
place of a name. Each of them is refused before anything is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.hostile_files import NO_FILES, NO_JSON, check_refused, command

DIGITS = "9" * 4500  # more than Python makes a number of
LARGE = "9" * 30

OPTIONS: list[tuple[str, str]] = [
    ("pipeline --rounds", LARGE),
    ("pipeline --rounds", DIGITS),
    ("pipeline --rounds", "-1"),
    ("pipeline --steps", "9" * 12),
    ("pipeline --chunks", LARGE),
    ("pipeline --seconds", "inf"),
    ("pipeline --seconds", "1e300"),
    ("pipeline --seconds", "-1"),
    ("pipeline --minutes", "nan"),
    ("pipeline --cores", DIGITS),
    ("pipeline --cores", "\u00b2"),
    ("pipeline --seed", DIGITS),
    ("pipeline --seed", LARGE),
    ("pipeline --policy", "\x1b[2J\nerror: forged"),
    ("pipeline --policy", ",".join(["dp-small"] * 100_000)),
    ("pipeline --pp-generation", LARGE),
    ("fig11 --concurrency", LARGE),
    ("fig11 --limit", "inf"),
    ("fig14 --perception", LARGE),
    ("fig16 --pp-perception", LARGE),
    ("fig16 --offsets", LARGE),
    ("cohost --period-ms", "1e300"),
    ("nova-load --rates", "nan"),
    ("nova-load --rates", "inf"),
    ("nova-load --rates", ",".join(["1"] * 100_000)),
    ("nova-load --requests", "9" * 12),
    ("nova-load --seeds", "9" * 12),
    ("nova-load --tbt-ms", "1e308"),
    ("nova-overhead --width", "9" * 12),
    ("nova-offload --layers", "9" * 12),
    ("lora-atmm --ranks", LARGE),
    ("lora-atmm --tokens", "0"),
    ("lora-atmm --ways", "a\x1b"),
    ("lora-heads --prefixes", LARGE),
    ("lora-swap --adapters", "9" * 12),
    ("monitor --tables", LARGE),
    ("moving-table --speeds", "nan"),
    ("moving-table --delays", LARGE),
    ("phase --shifts", "nan"),
    ("fig5 --episodes", LARGE),
]


@pytest.mark.parametrize(("option", "value"), OPTIONS, ids=lambda value: value[:40])
def test_a_value_of_nonsense_is_refused_by_its_option(option: str, value: str) -> None:
    bench, name = option.split()
    end = command("bench", bench, name, value)
    check_refused(end, name.removeprefix("--"))
    assert end.status == 2


FILES: dict[str, Callable[[Path], list[object]]] = {
    "fig10-eval": lambda path: ["fig10", "--eval", path],
    "fig10-rates": lambda path: ["fig10", "--rates", path],
    "nova-load-profile": lambda path: ["nova-load", "--profile", path],
    "lora-atmm-table": lambda path: ["lora-atmm", "--table", path],
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("option", FILES)
def test_what_is_no_file_is_refused_by_its_name(option: str, kind: str, tmp_path: Path) -> None:
    NO_FILES[kind](tmp_path / "input.json")
    check_refused(command("bench", *FILES[option](tmp_path / "input.json")), "input.json")


@pytest.mark.parametrize("kind", NO_JSON)
@pytest.mark.parametrize("option", FILES)
def test_a_file_of_nonsense_is_refused_by_its_name(option: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "input.json"
    path.write_bytes(NO_JSON[kind])
    end = command("bench", *FILES[option](path))
    check_refused(end, "input.json")
    assert end.status == 2


PROFILE = {
    "device": "d", "model": "m", "units": 4, "vision": 1.0, "prefill": {"64": 1.0, "128": 2.0}, "prompt": 64,
    "decode": 1.0, "decode_row": 0.1, "token_row": 0.1,
    "corun": {"1": {"vision": 1.0, "prefill": 1.0, "decode_by_vision": 1.0, "decode_by_prefill": 1.0}},
    "shared": {"vision": 1.0, "prefill": 1.0, "decode_by_vision": 1.0, "decode_by_prefill": 1.0},
}  # fmt: skip
PROFILES: dict[str, tuple[str, object]] = {
    "units": ("units", 10**300),
    "units-of-text": ("units", "4"),
    "no-number": ("vision", float("nan")),
    "infinite": ("decode", float("inf")),
    "negative": ("decode", -1.0),
    "beyond-all-numbers": ("decode", 10**400),
    "no-prefill": ("prefill", {}),
    "a-prefill-of-text": ("prefill", {"64": "1"}),
    "a-prefill-of-5000-digits": ("prefill", {"9" * 4500: 1.0}),
    "a-list-of-prefills": ("prefill", [1.0]),
    "a-prompt-below-zero": ("prompt", -1),
    "no-corun": ("corun", {}),
    "a-corun-of-nothing": ("corun", {"1": {}}),
    "shared-of-a-list": ("shared", [1.0]),
    "more": ("more", 1),
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_of_nonsense_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    key, value = PROFILES[name]
    (tmp_path / "input.json").write_text(json.dumps({**PROFILE, key: value}))
    end = command("bench", "nova-load", "--profile", tmp_path / "input.json")
    check_refused(end, "--profile: ")
    assert end.status == 2


@pytest.mark.parametrize(
    "words",
    [
        ["phase", "--config", "/dev/zero"],
        ["fig5", "--checkpoint", "/dev/zero"],
        ["fig5", "--work", "/dev/zero"],
    ],
    ids=lambda words: words[0],
)
def test_a_device_in_place_of_a_file_or_folder_is_refused(words: list[str]) -> None:
    check_refused(command("bench", *words), "/dev/zero")


@pytest.mark.parametrize("name", ["", " ", "\x1b[2J", "pipeline\nerror: forged", "../pipeline", "x" * 5000, "__init__"])
def test_what_is_no_bench_is_refused(name: str) -> None:
    end = command("bench", name)
    check_refused(end, "invalid choice")
    assert end.status == 2
