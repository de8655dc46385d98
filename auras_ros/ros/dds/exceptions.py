"""The refusals of parameters, as rclpy.exceptions names them; the message names the parameter."""

from __future__ import annotations


class ParameterException(Exception):
    """Base of all of them."""


class ParameterAlreadyDeclaredException(ParameterException):
    pass


class ParameterNotDeclaredException(ParameterException):
    pass


class InvalidParameterTypeException(ParameterException):
    pass


class InvalidParameterValueException(ParameterException):
    pass


class ParameterUninitializedException(ParameterException):
    pass


class ParameterImmutableException(ParameterException):
    pass
