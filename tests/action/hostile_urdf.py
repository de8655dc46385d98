"""Robot descriptions of an attacker: what is sent, and what the refusal has to say. Used for the text itself
(test_hostile_urdf) and for what comes over a topic (nodes/actuator/test_hostile_description)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.action.urdf import MAX_CHARS

LIMIT = '<limit lower="-1" upper="1" velocity="2" effort="3"/>'
GOOD = f'<robot name="r"><joint name="good" type="revolute">{LIMIT}</joint></robot>'


@dataclass(frozen=True)
class HostileDescription:
    """payload: made when it is needed, since some have megabytes. refused: part of the refusal; empty: it is read, and
    the joint `good` has its limits."""

    payload: Callable[[], bytes]
    refused: str = ""


def joint(inside: str = LIMIT, name: str = "j", kind: str = "revolute") -> str:
    return f'<joint name="{name}" type="{kind}">{inside}</joint>'


def limit(**fields: str) -> str:
    values = {"lower": "-1", "upper": "1", "velocity": "2", "effort": "3"} | fields
    return "<limit " + " ".join(f'{key}="{value}"' for key, value in values.items()) + "/>"


def robot(inside: str) -> str:
    """With a good joint beside it."""
    return f'<robot name="r">{joint(name="good")}{inside}</robot>'


def bad(text: str, refused: str) -> HostileDescription:
    return HostileDescription(lambda: text.encode("utf-8", "surrogatepass"), refused)


def good(inside: str, head: str = "") -> HostileDescription:
    return HostileDescription((head + robot(inside)).encode)


LOLS = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
HALF = MAX_CHARS // 2

HOSTILE: dict[str, HostileDescription] = {
    # entities
    "billion-laughs": bad(f'<!DOCTYPE r [<!ENTITY a0 "lol">{LOLS}]><robot>&a9;</robot>', "has a DOCTYPE"),
    "quadratic-blowup": bad(
        f'<!DOCTYPE r [<!ENTITY a "{"x" * 100_000}">]><robot>{"&a;" * 10_000}</robot>', "has a DOCTYPE"
    ),
    "external-file": bad('<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><robot name="&a;"/>', "has a DOCTYPE"),
    "external-url": bad('<!DOCTYPE r SYSTEM "http://127.0.0.1:9/r.dtd"><robot/>', "has a DOCTYPE"),
    "parameter-entity": bad('<!DOCTYPE r [<!ENTITY % a SYSTEM "/dev/zero"> %a;]><robot/>', "has a DOCTYPE"),
    "doctype-behind-a-declaration": bad(
        '<?xml version="1.0" encoding="UTF-8" standalone="no"?><!DOCTYPE robot><robot/>', "has a DOCTYPE"
    ),
    "undefined-entity": bad(robot("&a;"), "not XML: undefined entity"),
    "include": good('<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="/etc/passwd" parse="text"/>'),
    "xacro": good('<xacro:include filename="/etc/passwd"/>'),
    "stylesheet": good("", head='<?xml-stylesheet href="file:///dev/zero"?>'),
    # size and depth
    "empty": bad("", "not XML: no element found"),
    "blank": bad(" " * 100_000, "not XML: no element found"),
    "nothing-but-a-mark": HostileDescription(lambda: b"\xef\xbb\xbf", "not XML: no element found"),
    "too-long": HostileDescription(lambda: b"<robot>" + b" " * MAX_CHARS, "at most"),
    "attribute-of-100-MB": HostileDescription(lambda: b'<robot name="' + b"x" * 100_000_000 + b'"/>', "at most"),
    "attribute-of-2-MB": good(joint(name="n" * HALF)),
    "comment-of-2-MB": good(f"<!--{'x' * HALF}-->"),
    "text-of-2-MB": good(f"<![CDATA[{'<' * HALF}]]>"),
    "deep": bad("<robot>" * 100_000, "nested more than 64 deep"),
    "a-million-elements": good("<a/>" * 1_000_000),
    "a-hundred-thousand-attributes": good("<a " + " ".join(f'a{n}=""' for n in range(100_000)) + "/>"),
    "joints-of-many-parts": good(joint(LIMIT + "".join(f"<p{n}/>" for n in range(100_000)))),
    "twenty-thousand-joints": good("".join(joint(name=f"j{n}") for n in range(20_000))),
    "the-same-joint-twenty-thousand-times": bad(robot(joint() * 20_000), "joint 'j': name: used more than once"),
    # bytes
    "truncated": bad(robot(joint())[:-20], "not XML"),
    "binary": HostileDescription(lambda: bytes(range(1, 256)) * 100, "not "),
    "nul": bad("<robot>\0</robot>", "not XML"),
    "latin-1": HostileDescription(lambda: '<robot name="\xe9"/>'.encode("latin-1"), "not UTF-8"),
    "utf-16": HostileDescription(lambda: robot("").encode("utf-16"), "not UTF-8"),
    "overlong": HostileDescription(lambda: b"<robot>\xc0\xaf</robot>", "not UTF-8"),
    "lone-surrogate": bad('<robot name="\ud800"/>', "UTF-8"),
    # It was UTF-8 that was decoded: the declaration says nothing more.
    "another-encoding": good("", head='<?xml version="1.0" encoding="utf-7"?>'),
    "an-encoding-of-nonsense": good("", head=f'<?xml version="1.0" encoding="{"x" * 5000}"?>'),
    "two-robots": bad("<robot/><robot/>", "not XML: junk after document element"),
    "another-root": bad(f"<{'r' * 5000}/>", "expected <robot>"),
    "a-root-that-is-a-joint": bad(joint(), "expected <robot>"),
    # joints
    "nan": bad(robot(joint(limit(lower="nan"))), "joint 'j': limit lower: 'nan' is not a finite number"),
    "infinite": bad(robot(joint(limit(upper="inf"))), "limit upper: 'inf' is not a finite number"),
    "overflow": bad(robot(joint(limit(upper="1e999"))), "limit upper: '1e999' is not a finite number"),
    "5000-digits": bad(robot(joint(limit(velocity="9" * 5000))), "limit velocity: '9999"),
    "negative-velocity": bad(robot(joint(limit(velocity="-2"))), "limit velocity: -2 is below zero"),
    "negative-effort": bad(robot(joint(limit(effort="-1e300"))), "limit effort: -1e+300 is below zero"),
    "hexadecimal": bad(robot(joint(limit(lower="0x1"))), "limit lower: '0x1' is not a finite number"),
    "underscores": bad(robot(joint(limit(lower="1_0"))), "limit lower: '1_0' is not a finite number"),
    "other-digits": bad(robot(joint(limit(upper="\uff19"))), "limit upper: '\uff19' is not a finite number"),
    "no-number": bad(robot(joint(limit(lower=""))), "limit lower: '' is not a finite number"),
    "lower-above-upper": bad(robot(joint(limit(lower="3"))), "limit: lower 3 is above upper 1"),
    "two-limits": bad(robot(joint(LIMIT + LIMIT)), "limit: given twice"),
    "no-limit": bad(robot(joint("")), "limit: missing"),
    "no-name": bad(robot('<joint type="revolute"/>'), "a joint without a name"),
    "no-type": bad(robot('<joint name="j"/>'), "joint 'j': type: '' is not a joint type"),
    "a-type-of-nonsense": bad(robot(joint(kind="\n" + "x" * 5000)), "is not a joint type"),
    "a-name-that-forges-a-line": bad(
        robot(joint("", name="&#10;[FATAL] gone")), r"joint '\n[FATAL] gone': limit: missing"
    ),
    "a-fixed-joint-of-the-same-name": bad(
        robot(joint() + joint("", kind="fixed")), "joint 'j': name: used more than once"
    ),
    "a-fixed-joint-of-the-same-name-before": bad(
        robot(joint("", kind="fixed") + joint()), "joint 'j': name: used more than once"
    ),
    "a-mimic-of-a-megabyte": good(joint(LIMIT + f'<mimic joint="{chr(0xE9) * 1_500_000}"/>')),
    "a-mimic-of-itself": good(joint(LIMIT + '<mimic joint="j"/>')),
    "mimics-in-a-circle": good(
        joint(LIMIT + '<mimic joint="b"/>', name="a") + joint(LIMIT + '<mimic joint="a"/>', name="b")
    ),
    "a-mimic-of-nothing": bad(robot(joint(LIMIT + "<mimic/>")), "mimic joint: missing"),
    "two-mimics": bad(robot(joint(LIMIT + '<mimic joint="good"/>' * 2)), "mimic: given twice"),
}
