from __future__ import annotations

from . import LaunchContext


class LaunchConfiguration:
    def __init__(self, variable_name: str) -> None:
        self.variable_name = variable_name

    def perform(self, context: LaunchContext) -> str:
        return context.launch_configurations[self.variable_name]
