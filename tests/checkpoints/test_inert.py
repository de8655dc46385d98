"""Reading a pickle without doing what it says: real hostile files do nothing, and what is harmless is read as it is.

Guards: a module imported, a function called or an attribute set because a file asks for it; a file that makes the
reader run for ever.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.checkpoints import inert
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.inert import InertError, Name, PickledObject, Stored, read
from auras_ros.policies.loaders.ckpt import translate
from auras_ros.policies.loaders.ckpt_config import plain
from auras_ros.policies.loaders.robot import Robot
from tests.policies.loaders import diffusion_policy_file as made


class Hostile:
    """Pickles as a call of anything."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.args


def hostiles(marker: Path) -> dict[str, Any]:
    """Each would leave the file `marker` when loaded."""
    import os

    text = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Hostile(os.system, f"touch {marker}"),
        "eval": Hostile(eval, text),
        "exec": Hostile(exec, text),
        "subprocess": Hostile(subprocess.call, ["touch", str(marker)]),
        "import": Hostile(__import__, "auras_hostile"),
        "our own record": Hostile(inert.PickledObject, eval, (text,)),
        "a call of what a call gives": Hostile(getattr, Hostile(__import__, "auras_hostile"), "call"),
    }


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a hostile file would write; a module of the same name writes it when it is imported."""
    path = tmp_path / "marker"
    (tmp_path / "auras_hostile.py").write_text(f"open({str(path)!r}, 'w').close()\ncall = print\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.mark.parametrize("name", list(hostiles(Path("x"))))
def test_a_hostile_pickle_does_nothing(name: str, marker: Path) -> None:
    data = pickle.dumps({"bad": hostiles(marker)[name], "good": 3})
    value = read(data)
    assert value["good"] == 3
    assert isinstance(value["bad"], PickledObject)
    assert not marker.exists()
    assert "auras_hostile" not in sys.modules
    pickle.loads(data)  # it would have
    assert marker.exists() or name == "our own record"
    sys.modules.pop("auras_hostile", None)


@pytest.mark.parametrize("place", ["cfg", "value of cfg", "tensor", "state", "pickles", "all"])
def test_a_hostile_checkpoint_does_nothing(place: str, marker: Path, tmp_path: Path) -> None:
    """Wherever it stands: the file is refused by name, or converted without it."""
    bad = hostiles(marker)["exec"]
    saved: Any = made.payload(made.config(), made.state_dict(made.config()))
    if place == "cfg":
        saved["cfg"] = bad
    elif place == "value of cfg":
        saved["cfg"]["policy"]["horizon"] = bad
    elif place == "tensor":
        saved["state_dicts"]["ema_model"]["model.final_conv.1.bias"] = bad
    elif place == "state":
        saved["state_dicts"]["ema_model"] = bad
        saved["state_dicts"]["model"] = bad
    elif place == "pickles":
        saved["pickles"] = bad
    path = tmp_path / "bad.ckpt"
    torch.save(bad if place == "all" else saved, path)
    (tmp_path / "robot.json").write_text(json.dumps(made.robot()))
    robot = Robot.load(tmp_path / "robot.json")
    if place == "pickles":
        translate(path, robot).checkpoint("digest", path)
    else:
        with pytest.raises(CheckpointError, match="ckpt: "):
            translate(path, robot)
    assert not marker.exists()


def test_a_module_that_only_a_global_names_is_never_imported(marker: Path) -> None:
    value = read(b"\x80\x02cauras_hostile\nThing\n.")
    assert value == Name("auras_hostile", "Thing")
    assert str(value) == "auras_hostile.Thing"
    assert not marker.exists()


def test_state_is_set_on_nothing_but_records() -> None:
    """BUILD on a dict, and on a global's name, which is shared."""
    for of in (b"}", b"cbuiltins\nobject\n"):
        value = read(b"\x80\x02" + of + b"}(X\x01\x00\x00\x00aK\x01ub.")
        assert value in ({}, Name("builtins", "object"))


UNKNOWN: dict[str, bytes] = {
    "INST": b"(ibuiltins\nobject\n.",
    "OBJ": b"(cbuiltins\nobject\no.",
    "EXT1": b"\x80\x02\x82\x01.",
    "PERSID": b"Pname\n.",
    "NEXT_BUFFER": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("opcode", UNKNOWN)
def test_what_is_not_known_is_refused_by_the_opcode(opcode: str) -> None:
    with pytest.raises(InertError, match=f"opcode {opcode} is not supported"):
        read(UNKNOWN[opcode])


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "no pickle": b"hello",
    "does not end": b"\x80\x02K\x01",
    "empty stack": b"\x80\x02.",
    "no mark": b"\x80\x02K\x01t.",
    "a mark alone": b"\x80\x02(.",
    "unknown memory": b"\x80\x02h\x07.",
    "odd items": b"\x80\x02}(K\x01u.",
    "items into a number": b"\x80\x02K\x01K\x02K\x03s.",
    "values into a text": b"\x80\x02X\x01\x00\x00\x00aK\x02a.",
    "a list as a key": b"\x80\x02}]K\x01s.",
    "a record as a member": b"\x80\x04\x8f(cbuiltins\nobject\n)R\x90.",
    "a long tuple as a key": pickle.dumps({tuple(range(17)): 1}),
    "a list in a tuple as a key": b"\x80\x02}]\x85K\x01s.",
    "a record in a tuple as a key": b"\x80\x04}cbuiltins\nobject\n)R\x85K\x01s.",
    "a tuple three deep as a key": pickle.dumps({(((1,),),): 1}),
    "a nested tuple as a key": b"\x80\x02})" + b"\x85" * 100_000 + b"K\x01s.",
    "text that is none": b"\x80\x02X\x01\x00\x00\x00\xff.",
    "a global whose name is a record": b"\x80\x04\x8c\x01acbuiltins\nobject\n)R\x93.",
    "longer than it is": b"\x80\x02X\xff\xff\xff\x7fa.",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_pickle_is_refused(name: str) -> None:
    with pytest.raises(InertError):
        read(BROKEN[name])


def test_a_pickle_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert, "MOST_OPCODES", 1000)
    with pytest.raises(InertError, match="more than 1000 opcodes"):
        read(b"\x80\x02" + b"K\x010" * 1000 + b".")


def test_what_contains_itself_or_grows_without_bound_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        plain(read(pickle.dumps(loop)))
    laughs: list[Any] = ["ha"]
    for _ in range(30):
        laughs = [laughs] * 10
    with pytest.raises(ValueError, match="more than"):
        plain(read(pickle.dumps(laughs)))


KEYS = st.text() | st.integers() | st.tuples(st.text(), st.tuples(st.integers(), st.none()))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


@given(value=PLAIN, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_what_pickle_reads(value: Any, protocol: int) -> None:
    """Protocols 0 to 2 write bytes as a call, which is not made."""
    data = pickle.dumps(value, protocol)
    if b"_codecs" not in data and b"__builtin__" not in data:
        assert read(data) == value


def test_a_tuple_of_plain_values_is_a_key() -> None:
    """hydra's dates: omegaconf keeps what a resolver answered by the resolver's arguments."""
    cache = {"now": {("%Y-%m-%d",): "2026-11-29", ("%H", ("a", 1)): "21"}}
    assert read(pickle.dumps(cache)) == cache
    with pytest.raises(ValueError, match="a key is a number of 4096 bits"):
        plain(read(pickle.dumps({(("x", 1 << 4095),): 1})))


def test_sets_and_records_keep_what_was_put_into_them() -> None:
    assert read(pickle.dumps({1, "a"}, 4)) == {1, "a"}
    assert read(pickle.dumps(frozenset({1, 2}), 4)) == frozenset({1, 2})
    ordered = read(pickle.dumps(OrderedDict(b=1, a=2), 2))
    assert (ordered.of, list(ordered.items.items())) == (Name("collections", "OrderedDict"), [("b", 1), ("a", 2)])
    assert plain(ordered) == {"b": 1, "a": 2}
    assert read(b"\x80\x02K\x07Q.") == Stored(7)
