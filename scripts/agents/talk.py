"""Stock agent frameworks against a server of ours, as their own pages use them: no option of ours is set.

    .venv-agents/bin/python scripts/agents/talk.py http://127.0.0.1:8000/v1 MODEL

It prints a line for each conversation, and ends with status 1 if one of them is not what its framework promises. A
model with random weights is enough: what must be called is held to by the grammar.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Literal

from agents import Agent as OpenAiAgent
from agents import (
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

Side = Literal["left", "right"]
TOKENS = 600


class Move(BaseModel):
    """A move of the tee."""

    side: Side
    steps: Literal[1, 2, 3]


def check_move(move: Move) -> None:
    assert move.side in ("left", "right"), move
    assert move.steps in (1, 2, 3), move


async def pydantic_ai_output(provider: OpenAIProvider, name: str) -> str:
    """The output is a tool that must be called."""
    agent = Agent(OpenAIChatModel(name, provider=provider), output_type=Move, instructions="be brief")
    result = await agent.run("where must the tee go?", model_settings={"max_tokens": TOKENS})
    check_move(result.output)
    return str(result.output)


async def pydantic_ai_responses(provider: OpenAIProvider, name: str) -> str:
    agent = Agent(PydanticResponsesModel(name, provider=provider), output_type=Move, instructions="be brief")
    result = await agent.run("where must the tee go?", model_settings={"max_tokens": TOKENS})
    check_move(result.output)
    return str(result.output)


async def pydantic_ai_stream(provider: OpenAIProvider, name: str) -> str:
    agent = Agent(OpenAIChatModel(name, provider=provider), output_type=Move)
    async with agent.run_stream("where must the tee go?", model_settings={"max_tokens": TOKENS}) as result:
        output = await result.get_output()
    check_move(output)
    return str(output)


async def pydantic_ai_tool(provider: OpenAIProvider, name: str) -> str:
    """A tool beside the output: the model may call either, until it gives the output."""
    called = list[Side]()
    agent = Agent(OpenAIChatModel(name, provider=provider), output_type=Move)

    @agent.tool_plain
    def look(side: Side) -> str:
        """Look at one side of the table."""
        called.append(side)
        return "nothing is there"

    settings = {"max_tokens": TOKENS, "temperature": 1.5}
    result = await agent.run("look, then tell where the tee must go", model_settings=settings)
    check_move(result.output)
    return f"{result.output} after {len(called)} looks"


def openai_agents(responses: bool) -> Callable[[AsyncOpenAI, str], Awaitable[str]]:
    async def talk(client: AsyncOpenAI, name: str) -> str:
        """One tool that must be called first; then the model may call it again, until it gives the output."""
        called = list[str]()

        @function_tool
        def turn(side: Side, steps: Literal[1, 2]) -> str:
            """Turn the tee."""
            called.append(f"{side} {steps}")
            return "turned"

        kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
        agent = OpenAiAgent(
            name="table",
            instructions="turn the tee",
            tools=[turn],
            model=kind(model=name, openai_client=client),
            output_type=Move,
            model_settings=ModelSettings(tool_choice="turn", max_tokens=TOKENS, parallel_tool_calls=False),
        )
        result = await Runner.run(agent, "turn it")
        assert called
        check_move(result.final_output)
        return f"{result.final_output} after {len(called)} turns"

    return talk


async def main(url: str, name: str) -> int:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    provider = OpenAIProvider(openai_client=client)
    failed = 0
    for title, talk, given in (
        ("pydantic-ai, output", pydantic_ai_output, provider),
        ("pydantic-ai, Responses API", pydantic_ai_responses, provider),
        ("pydantic-ai, streamed", pydantic_ai_stream, provider),
        ("pydantic-ai, tool and output", pydantic_ai_tool, provider),
        ("openai-agents, chat", openai_agents(False), client),
        ("openai-agents, Responses API", openai_agents(True), client),
    ):
        try:
            print(f"ok    {title}: {await talk(given, name)}", flush=True)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001  (whatever a framework raises is what is looked for)
            failed += 1
            print(f"FAIL  {title}: {type(error).__name__}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
