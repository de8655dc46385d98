"""Attacks on the wire against a required emergency stop: forged packets, a button that is stopped or killed."""
