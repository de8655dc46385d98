"""Errors of parameters, with the names of rclpy.exceptions; the message names the parameter."""

from __future__ import annotations


class ParameterException(Exception):
    """Base of all of them."""


class ParameterAlreadyDeclaredException(ParameterException):
    """A second declaration of one name."""


class ParameterNotDeclaredException(ParameterException):
    """A name that was never declared is read or set."""


class InvalidParameterTypeException(ParameterException):
    """A value of another type than the declared one."""


class InvalidParameterValueException(ParameterException):
    """A value outside its range, or one that a callback refused."""


class ParameterUninitializedException(ParameterException):
    """Declared with a type, read before it has a value."""
