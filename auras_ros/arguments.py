"""The parser of a command's arguments: an error is one line, and names what was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from auras_ros.spelling import hint


class CommandParser(argparse.ArgumentParser):
    """As argparse's, but an error does not print the usage: `--help` does. Texts stay as they are written."""

    def __init__(self, prog: str, description: str | None, epilog: str = "", add_help: bool = True) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=prog, description=description, epilog=epilog, formatter_class=form, add_help=add_help)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} ({self.prog} --help)\n")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Ends the process for an option that is not known."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            if name.startswith("-"):
                self.error(f"no option {name}{hint(name, self._option_string_actions)}")
            self.error(f"unexpected argument: {unknown[0]}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            meant = hint(str(value), known, show_all=True)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r:.80}{meant}")
