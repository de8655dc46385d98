"""Readers that drop everything a living publisher says: how to notice them, and what each ROS needs to hear again.

A broken or forged RTPS packet can make a reader expect a sequence number far ahead, so that it takes every message for
an old one. With Fast DDS (rclpy) a new reader hears again, because the number is the reader's own. Cyclone DDS (our
layer) keeps it for all readers of the process; there the other participants are forgotten and discovered again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .backend import BACKEND


def dropped_bytes(subscription: Any) -> int:
    """How many bytes came for this subscription and were dropped unread. 0 under rclpy, which does not tell."""
    return int(subscription.endpoint.dropped_bytes()) if BACKEND == "dds" else 0


def rediscover(node: Any) -> int:
    """Part from all other participants, to discover them again as if this process had just started: every reader
    begins anew, those of services and of discovery too. Until they are found again, within a second, no message is
    exchanged with them. Returns their number; 0 under rclpy, where a new reader is enough."""
    if BACKEND != "dds":
        return 0
    from .dds.forgetting import part_from_others

    context = node.context
    return part_from_others(context.domain_id, context.participant.gid, context.graph.other_participants())


def renew_services(node: Any) -> list[str]:
    """Replace the services of a node by new ones that are equal, and answer what waits in the old ones first. Returns
    the names of those replaced.

    For rclpy, from a callback of the node's single-threaded executor: no service is being answered then. The services
    of a lifecycle node's states belong to rcl and cannot be replaced. Nothing is done in our layer, where `rediscover`
    renews the services too."""
    if BACKEND != "rclpy":
        return []
    kept = {id(service) for name, service in vars(node).items() if name.startswith("_service_")}  # of LifecycleNode
    renewed = []
    for service in list(node.services):
        if id(service) in kept:
            continue
        _answer_waiting(service)
        callback: Callable[..., Any] = service.callback
        node.destroy_service(service)
        node.create_service(
            service.srv_type,
            service.srv_name,
            callback,
            qos_profile=service.qos_profile,
            callback_group=service.callback_group,
        )
        renewed.append(service.srv_name)
    return renewed


def _answer_waiting(service: Any) -> None:
    """Answer the requests that this service of rclpy has received and not yet answered."""
    for _ in range(service.qos_profile.depth):
        request, header = None, None
        with suppress(RuntimeError, TypeError), service.handle:  # a payload that is no request
            request, header = service.handle.service_take_request(service.srv_type.Request)
        if header is None:
            return
        response = service.callback(request, service.srv_type.Response())
        service.send_response(response, header)
