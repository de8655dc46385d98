"""The fields of a request, as OpenAI names them, and vLLM's beyond these; docs/serve.md has them as a table."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, FailFast, Field

from auras_ros.engine.request import MOST_BIASES, MOST_LOGPROBS, MOST_STOPS
from auras_ros.serve.form_fields import Choices, ResponseFormat, Schema, StructuredOutputs, Whitespace
from auras_ros.serve.message_fields import MOST_MESSAGES, ChatMessage, ToolChoice, Tools
from auras_ros.serve.request_fields import RequestFields, at_most, only

MOST_STOP_IDS = 256
MOST_ANSWERS = 1024  # of a request; the engine's places are fewer
MOST_VARIABLES = 64  # of a chat template


def _listed(value: Any) -> Any:
    """Empty texts stop nothing."""
    given = [value] if isinstance(value, str) else value
    return [text for text in given if text != ""] if isinstance(given, list) else given


def _prompt(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise ValueError("expected a text, a list of token ids, or a list of texts or of lists of token ids")
    return value


class StreamOptions(RequestFields):
    """continuous_usage_stats: vLLM's; every chunk has the usage so far."""

    ignored: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})

    include_usage: bool = False
    continuous_usage_stats: bool = False


class CommonFields(RequestFields):
    """What both kinds of requests take."""

    ignored: ClassVar[frozenset[str]] = frozenset({
        "user", "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier",
        "verbosity", "reasoning_effort", "prediction", "guided_decoding_backend", "cache_control",
    })  # fmt: skip
    empty_counts: ClassVar[frozenset[str]] = frozenset({"guided_json"})

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MOST_ANSWERS)] = 1
    best_of: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    length_penalty: Annotated[float, only(1, 1.0)] = 1.0
    logit_bias: Annotated[dict[str, float], at_most(MOST_BIASES)] = Field({})
    seed: int | None = None
    stop: Annotated[list[str], FailFast(), at_most(MOST_STOPS), BeforeValidator(_listed)] = Field([])
    stop_token_ids: Annotated[list[int], FailFast(), at_most(MOST_STOP_IDS)] = Field([])
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    spaces_between_special_tokens: Annotated[bool, only(True)] = True
    prompt_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema = None
    guided_regex: str | None = None
    guided_choice: Choices = Field([])
    guided_grammar: str | None = None
    guided_whitespace_pattern: Whitespace | None = None
    priority: int = 0
    deadline_ms: float | None = None
    task_head: bool | None = None

    @property
    def shows_usage_at_end(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def shows_usage_always(self) -> bool:
        return (
            self.shows_usage_at_end and self.stream_options is not None and self.stream_options.continuous_usage_stats
        )

    @property
    def alternatives(self) -> int | None:
        """How many log probabilities of each token are asked for; None: none, not even its own."""
        raise NotImplementedError

    def forget_prompt(self) -> None:
        """Frees texts and images, which an answer does not need while it is made."""
        raise NotImplementedError

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these fields that the request has."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class ChatFields(CommonFields):
    messages: Annotated[list[ChatMessage], FailFast(), at_most(MOST_MESSAGES), Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int | None, Field(ge=0, le=MOST_LOGPROBS)] = None
    tools: Tools = Field([])
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool = True
    function_call: Annotated[str | None, only("none", "auto")] = None  # the old name of tool_choice
    modalities: Annotated[list[str], only(["text"])] = Field(["text"])
    chat_template_kwargs: Annotated[dict[str, Any], at_most(MOST_VARIABLES)] = Field({})
    add_generation_prompt: bool = True

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def forget_prompt(self) -> None:
        self.messages = []


class CompletionFields(CommonFields):
    prompt: Annotated[Any, BeforeValidator(_prompt)]
    logprobs: int | None = None
    echo: bool = False
    add_special_tokens: Annotated[bool, only(True)] = True

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    def forget_prompt(self) -> None:
        self.prompt = ""


class AdapterFields(RequestFields):
    """Of a request that removes an adapter; as vLLM names them."""

    lora_name: str


class LoadAdapterFields(AdapterFields):
    """Of one that adds it."""

    lora_path: str
