"""How a server is set up: checked once, from the command line or a YAML file whose keys have the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from auras_ros import parameter_file, resources
from auras_ros.engine.options import EngineOptions
from auras_ros.parameters import ParameterError, checked, parameter
from auras_ros.spelling import hint

LOOPBACK = ("127.0.0.1", "localhost", "::1")
PATHS = ("model", "token_file", "stage_profile", "swap_folder", "lora_folder")  # may be relative to their file
VLLM_NAMES = {
    "served_model_name": "name",
    "max_model_len": "length",
    "max_num_seqs": "running",
    "max_num_batched_tokens": "prefill_tokens",
    "block_size": "block",
    "enable_prefix_caching": "prefix_cache",
    "enable_chunked_prefill": "chunked",
    "data_parallel_size": "replicas",
}
"""Options by vLLM's names, and our own."""
NEEDLESS = (
    "enable_lora", "enable_auto_tool_choice", "trust_remote_code", "enforce_eager", "disable_log_requests",
    "disable_log_stats", "disable_uvicorn_access_log",
)  # fmt: skip
"""vLLM's switches for what this server always does, or never: they change nothing."""
HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f]*:[0-9a-f:.]+")  # a name, an IPv4 or an IPv6 address
MOST_SLOTS = 8  # adapters in memory, where nobody says how many


@dataclass(frozen=True)
class ImageLimits:
    """images: of one request. pixels: of an image before it is resized."""

    images: int
    pixels: int


@dataclass(frozen=True)
class ServeOptions:
    """What the server takes beyond the engine's own options."""

    model: str = parameter("", "folder of a vision-language model, or the name of one that ships")
    host: str = parameter("127.0.0.1", "address to listen at; only this machine reaches the default")
    port: int = parameter(8000, "port; 0 is one that is free", 0, 65535)
    name: str = parameter("", "what requests call the model; empty: the folder's name")
    dtype: str = parameter("auto", "type of the weights: auto, float32, bfloat16, float16")
    cores: tuple[int, ...] = parameter((), "cores of the whole process, e.g. 0,1; empty: those it is started on")
    replicas: int = parameter(1, "engines, each in a process of its own on its share of the cores", 1, 64)
    token_file: str = parameter("", "file with the token that requests must have; AURAS_SERVE_TOKEN does the same")
    api_key: str = parameter("", "the token itself, which the process list shows to this machine: token_file does not")
    allowed_host: tuple[str, ...] = parameter(
        (), "other names of this server that Host and Origin of a request may have; several with commas or again"
    )
    body_mib: int = parameter(32, "of a request, at most", 1, 1024)
    images: int = parameter(8, "of a request, at most", 0, 64)
    image_mpixels: int = parameter(32, "of an image before it is resized, at most; millions", 1, 89)
    preparing: int = parameter(2, "threads that decode images and tokenise prompts", 1, 16)
    lora_modules: tuple[tuple[str, str], ...] = parameter(
        (), "adapters that requests may name as their model, and their folders; several with commas or again"
    )
    lora_folder: str = parameter("", "folder whose adapters may be added while serving; empty: none may")

    @property
    def image_limits(self) -> ImageLimits:
        return ImageLimits(self.images, self.image_mpixels * 1_000_000)

    @property
    def is_local(self) -> bool:
        """Whether no other machine reaches the server."""
        try:
            return self.host in LOOPBACK or ip_address(self.host).is_loopback
        except ValueError:  # a name
            return False


Named = Mapping[str, Any]
OWN: Mapping[str, Field[Any]] = {each.name: each for each in fields(ServeOptions)}
ENGINE: Mapping[str, Field[Any]] = {each.name: each for each in fields(EngineOptions)}


def make_options(given: Named) -> tuple[ServeOptions, EngineOptions]:
    """given: by our names or vLLM's. Raises ParameterError or ValueError, naming the option."""
    given = in_our_names(given)
    for name in given:
        if name not in OWN and name not in ENGINE:
            raise ParameterError(f"no option '{name}'{hint(name, [*OWN, *ENGINE, *VLLM_NAMES])}")
    if "lora_modules" in given:
        given["lora_modules"] = read_modules(given["lora_modules"])
    if "allowed_host" in given:
        given["allowed_host"] = read_hosts(given["allowed_host"])
    own = {name: checked("serve", each, given[name]) for name, each in OWN.items() if name in given}
    engine = {name: _typed(each, given[name]) for name, each in ENGINE.items() if name in given}
    made = ServeOptions(**own)
    _check_cores("serve: cores", made.cores)
    if made.api_key and made.token_file:
        raise ParameterError("serve: api_key: the token is given by token_file too")
    if made.lora_modules or made.lora_folder:
        engine.setdefault("max_loras", MOST_SLOTS if made.lora_folder else min(MOST_SLOTS, len(made.lora_modules)))
        if engine["max_loras"] == 0:
            raise ParameterError("engine: max_loras: 0 leaves no memory for lora_modules and lora_folder")
    return made, EngineOptions(**engine)


def in_our_names(given: Named) -> dict[str, Any]:
    """Raises ParameterError for an option that is there under both names."""
    renamed = dict[str, Any]()
    for name, value in given.items():
        own = VLLM_NAMES.get(name, name)
        if name in NEEDLESS:
            continue
        if own in renamed:
            raise ParameterError(f"serve: {name}: is {own}, which is there too")
        renamed[own] = value
    return renamed


def read_modules(given: object) -> tuple[tuple[str, str], ...]:
    """Names and folders of adapters: a mapping, a text such as left=FOLDER,right=FOLDER, or a list of such texts.
    Raises ParameterError."""
    found = dict[str, str]()
    for name, folder in _pairs(given):
        if not isinstance(name, str) or not isinstance(folder, str) or not name or not folder:
            raise ParameterError(f"serve: lora_modules: expected NAME=FOLDER, got {name!r} and {folder!r}")
        if name in found:
            raise ParameterError(f"serve: lora_modules: '{name}' is there twice")
        found[name] = folder
    return tuple(found.items())


def read_hosts(given: object) -> tuple[str, ...]:
    """Names of hosts: a text such as robot.local,robot, or a list of such texts. Raises ParameterError."""
    names = list[str]()
    for text in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(text, str):
            raise ParameterError(f"serve: allowed_host: expected a host's name, got {text!r}")
        for part in text.split(","):
            name = part.strip().lower()
            if not HOST_NAME.fullmatch(name):
                raise ParameterError(
                    f"serve: allowed_host: expected a host's name without scheme and port, such as robot.local, got "
                    f"{part.strip()!r}"
                )
            names.append(name)
    return tuple(dict.fromkeys(names))


def _pairs(given: object) -> Iterator[tuple[object, object]]:
    if isinstance(given, Mapping):
        yield from given.items()
        return
    for text in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(text, str):
            raise ParameterError(f"serve: lora_modules: expected NAME=FOLDER, got {text!r}")
        for part in text.split(","):
            name, _, folder = part.partition("=")
            yield name.strip(), folder.strip()


def read_options(path: Path) -> dict[str, Any]:
    """The options in a file, by name. Raises ParameterError, naming file and line, or OSError."""
    values, lines = parameter_file.read(path)
    if not isinstance(values, dict):
        raise ParameterError(f"{path}: expected options, such as model: FOLDER")
    for name, value in values.items():
        line = lines.get((str(name),), 1)
        try:
            make_options({name: value})
        except ValueError as error:
            raise ParameterError(f"{path}:{line}: {error}") from error
        if name in PATHS and value:
            values[name] = _beside(path, value)
        elif name == "lora_modules":
            values[name] = {key: _beside(path, folder) for key, folder in read_modules(value)}
    return values


def _beside(file: Path, path: str) -> str:
    """A path in a file is from its folder on; where nothing is there, it may be the name of one that ships."""
    there = file.parent / path
    return path if not there.exists() and resources.ships(path) else str(there)


def _typed(each: Field[Any], value: Any) -> Any:
    """A number too small is the engine's own to refuse."""
    if type(value) is not type(each.default):
        raise ParameterError(f"engine: {each.name}: expected {type(each.default).__name__}, got {value!r}")
    return value


def _check_cores(name: str, cores: Any) -> None:
    if not isinstance(cores, tuple) or any(type(core) is not int or core < 0 for core in cores):
        raise ParameterError(f"{name}: expected core numbers, got {cores!r}")
