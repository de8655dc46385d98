"""The policy file of SROS 2: which enclave may publish, subscribe to, serve and call what.

`ros2 security create_permission` and `generate_artifacts` read it and make the signed permissions of each enclave. What
is not listed is denied. The format is version 0.2.0 of sros2's schema `policy.xsd`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from auras_ros.ros.endpoints import Endpoints
from auras_ros.topic_names import RemapRule

VERSION = "0.2.0"
# (tag of the list, tag of each entry, attribute, field of `Endpoints`)
RULES = (
    ("topics", "topic", "publish", "publishes"),
    ("topics", "topic", "subscribe", "subscribes"),
    ("services", "service", "reply", "serves"),
    ("services", "service", "request", "calls"),
)


def policy_text(enclaves: Mapping[str, Sequence[Endpoints]], namespace: str, remaps: Sequence[RemapRule] = ()) -> str:
    """The XML of a policy. enclaves: path, such as /actuator -> the nodes of its process. namespace: of all nodes, such
    as /left; empty: none. remaps: of every node."""
    policy = ElementTree.Element("policy", version=VERSION)
    listed = ElementTree.SubElement(policy, "enclaves")
    for path, nodes in enclaves.items():
        enclave = ElementTree.SubElement(listed, "enclave", path=path)
        profiles = ElementTree.SubElement(enclave, "profiles")
        for node in nodes:
            profile = ElementTree.SubElement(profiles, "profile", ns=namespace or "/", node=node.node)
            _add_rules(profile, node.absolute(namespace, remaps))
    ElementTree.indent(policy)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(policy, encoding="unicode") + "\n"


def _add_rules(profile: ElementTree.Element, node: Endpoints) -> None:
    for tag, entry, attribute, field in RULES:
        names: tuple[str, ...] = getattr(node, field)
        if names:
            rule = ElementTree.SubElement(profile, tag, {attribute: "ALLOW"})
            for name in names:
                ElementTree.SubElement(rule, entry).text = name
