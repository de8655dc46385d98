"""RIHS01 type hashes as ROS 2 computes them (REP-2011), put in an endpoint's user data.

rosbags gives `char` an id of its own; ROS hashes it as uint8. The hash is therefore taken over definitions
in which char is replaced.
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


@cache
def type_hash(ros_type: str) -> str:
    """'RIHS01_…' of a registered type."""
    store = Typestore()
    todo = [ros_type]
    while todo:
        name = todo.pop()
        definition: Any = STORE.fielddefs[name]
        constants, fields = definition
        store.fielddefs[name] = (constants, [(field, _without_char(what)) for field, what in fields])
        for _, (kind, what) in fields:
            inner = what[0] if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE) else (kind, what)
            if inner[0] == Nodetype.NAME and inner[1] not in store.fielddefs:
                todo.append(inner[1])
    return store.hash_rihs01(ros_type)


def user_data(ros_type: str) -> bytes:
    """What an endpoint announces of its type."""
    return f"typehash={type_hash(ros_type)};".encode()
