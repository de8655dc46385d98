"""RIHS01 type hashes as ROS 2 computes them (REP-2011), put in an endpoint's user data.

rosbags gives `char` its own type id; ROS hashes it as uint8. So the hash is computed from definitions in which
char is replaced.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.typesys.store import Typestore

from .messages import STORE


def _without_char(description: Any) -> Any:
    kind, what = description
    if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        return kind, (_without_char(what[0]), what[1])
    return (kind, ("uint8", what[1])) if kind == Nodetype.BASE and what[0] == "char" else description


class _Definitions(dict[str, Any]):
    """The definitions of our store without char, each converted at its first use."""

    def __missing__(self, ros_type: str) -> Any:
        constants, fields = STORE.fielddefs[ros_type]
        self[ros_type] = constants, [(field, _without_char(what)) for field, what in fields]
        return self[ros_type]


_STORE = Typestore()
_STORE.fielddefs = _Definitions()


@cache
def type_hash(ros_type: str) -> str:
    """'RIHS01_…' of a registered type."""
    return _STORE.hash_rihs01(ros_type)


def user_data(ros_type: str) -> bytes:
    """What an endpoint announces about its type."""
    return f"typehash={type_hash(ros_type)};".encode()
