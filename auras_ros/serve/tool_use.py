"""Which tools an answer may call, which it must, and how its calls are recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from auras_ros.checkpoints.vlm.chat import VlmPrompts
from auras_ros.checkpoints.vlm.tool_form import ToolForm
from auras_ros.engine.request import Grammar, InvalidRequestError
from auras_ros.engine.tool_grammar import CalledTool, CallText, write_tool_grammar
from auras_ros.serve.fields import ChatFields
from auras_ros.serve.message_fields import ToolFields, described


@dataclass(frozen=True)
class ToolUse:
    """Of one request."""

    # Of which an answer may call.
    tools: tuple[ToolFields, ...]
    # Whether the model may decide, calls one or more, or calls this one tool.
    choice: Literal["auto", "required", "named"]
    # One call and no more.
    single: bool
    # How the model writes calls.
    form: ToolForm
    # Ids of the special tokens in that form.
    specials: Mapping[str, int]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.function.name for tool in self.tools)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """For the chat template, as OpenAI describes tools."""
        return [described(tool) for tool in self.tools]

    def grammar(self, answer: Mapping[str, Any] | None) -> Grammar | None:
        """That holds the answer to its calls; None: the model may say what it likes. answer: the JSON schema of an
        answer that calls nothing, if it has one."""
        if self.choice == "auto" and answer is None:
            return None
        text = CallText(self.form.head, self.form.between, self.form.middle, self.form.tail, self.specials)
        called = [
            CalledTool(tool.function.name, tool.function.parameters, f"tools[{index}].function.parameters")
            for index, tool in enumerate(self.tools)
        ]
        if self.choice != "auto":
            answer = None
        return Grammar("tools", write_tool_grammar(text, called, self.single, answer))


def read_tool_use(fields: ChatFields, prompts: VlmPrompts) -> ToolUse | None:
    """None: no tool is called. Raises InvalidRequestError, or PromptError for a template whose form is not known."""
    choice = fields.tool_choice
    wanted = "auto" if choice is None else choice.type
    if not fields.tools:
        if wanted in ("required", "function"):
            raise InvalidRequestError("tool_choice: there are no tools to choose from")
        return None
    _check_names(fields.tools)
    if wanted == "none":
        return None
    tools = tuple(fields.tools)
    if choice is not None and choice.function is not None:
        name = choice.function.name
        tools = tuple(tool for tool in tools if tool.function.name == name)
        if not tools:
            raise InvalidRequestError(f"tool_choice: '{name}' is not one of the tools")
    form = prompts.tool_form
    text = form.head + form.between + form.middle + form.tail
    specials = {token: number for token, number in prompts.special_tokens.items() if token in text}
    kind: Literal["auto", "required", "named"] = "auto"
    if wanted == "required":
        kind = "required"
    elif wanted == "function":
        kind = "named"
    return ToolUse(tools, kind, kind == "named" or not fields.parallel_tool_calls, form, specials)


def _check_names(tools: Sequence[ToolFields]) -> None:
    names = set[str]()
    for index, tool in enumerate(tools):
        if tool.function.name in names:
            raise InvalidRequestError(f"tools[{index}].function.name: '{tool.function.name}' is there twice")
        names.add(tool.function.name)
