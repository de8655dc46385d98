"""rclpy.exceptions, and the errors that rclpy raises from its C part."""

from __future__ import annotations

from typing import Any


class RCLError(RuntimeError):
    """What the C part raises."""


class InvalidHandle(Exception):  # noqa: N818
    """Used after it was destroyed."""


class NotInitializedException(Exception):  # noqa: N818
    def __init__(self, *args: Any) -> None:
        super().__init__("rclpy.init() has not been called", *args)


class NameValidationException(Exception):  # noqa: N818
    pass


class InvalidTopicNameException(NameValidationException):
    pass


class InvalidServiceNameException(NameValidationException):
    pass


class ParameterException(Exception):  # noqa: N818
    def __init__(self, error_msg: str, parameters: Any, *args: Any) -> None:
        super().__init__(f"{error_msg}: {parameters}", *args)


class ParameterNotDeclaredException(ParameterException):
    def __init__(self, parameters: Any, *args: Any) -> None:
        super().__init__("Invalid access to undeclared parameter(s)", parameters, *args)


class ParameterAlreadyDeclaredException(ParameterException):
    def __init__(self, parameters: Any, *args: Any) -> None:
        super().__init__("Parameter(s) already declared", parameters, *args)


class InvalidParameterTypeException(ParameterException):
    def __init__(self, desired_parameter: Any, expected_type: Any, *args: Any) -> None:
        text = f"Trying to set parameter {desired_parameter.name!r} to {desired_parameter.value!r}"
        super().__init__(f"{text}, expecting type", expected_type, *args)


class InvalidParameterValueException(ParameterException):
    def __init__(self, parameter: Any, value: Any, reason: str = "") -> None:
        super().__init__(f"Invalid value {value!r}: {reason}", parameter)


class ParameterUninitializedException(ParameterException):
    def __init__(self, parameters: Any, *args: Any) -> None:
        super().__init__("The parameter(s) is not initialized", parameters, *args)
