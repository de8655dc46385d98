"""Attributes of rclpy's own nodes: a node of ours that uses one of these names breaks without a word."""

from __future__ import annotations

_NODE = """
    _allow_undeclared_parameters _apply_descriptor _apply_descriptor_and_set _apply_descriptors
    _apply_floating_point_range _apply_integer_range _call_post_set_parameters_callback
    _call_pre_set_parameters_callback _check_undeclared_parameters _clients _clock _context
    _count_clients_or_servers _count_publishers_or_subscribers _declare_parameter_common _default_callback_group
    _descriptors _get_info_by_topic _guards _logger _logger_service _on_set_parameters_callbacks
    _parameter_event_publisher _parameter_overrides _parameter_service _parameters
    _post_set_parameters_callbacks _pre_set_parameters_callbacks _publishers _rate_group _services
    _set_parameters_atomically _set_parameters_atomically_common _subscriptions _time_source _timers
    _type_description_service _validate_qos_or_depth_parameter _validate_topic_or_service_name _wake_executor
"""
_LIFECYCLE = """
    _callbacks _managed_entities _state_machine _service_change_state _service_get_available_states
    _service_get_available_transitions _service_get_state _service_get_transition_graph
"""
_PUBLIC = """
    clients context default_callback_group executor guards handle publishers services subscriptions timers waitables
"""
RESERVED = frozenset((_NODE + _LIFECYCLE + _PUBLIC).split())
