"""`auras serve MODEL|CONFIG`: an OpenAI-compatible server of a vision-language model, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import Field, replace
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors, print_warnings
from auras_ros.heap import TENSOR_BLOCK, bound_heap
from auras_ros.output import non_blocking_output
from auras_ros.serve.options import (
    ENGINE,
    NEEDLESS,
    OWN,
    VLLM_NAMES,
    ServeOptions,
    in_our_names,
    make_options,
    read_options,
)

TOKEN = "AURAS_SERVE_TOKEN"
LISTS = {"lora_modules": "NAME=FOLDER", "allowed_host": "NAME"}  # options that may be given again
EXAMPLE = """
example
  auras serve pusht-vlm                                     the model that ships, at http://127.0.0.1:8000/v1
  auras serve pusht-vlm --lora-modules goal=pusht-monitor/goal
  auras serve SmolVLM2-500M-Video-Instruct --running 4 --kv-mib 256 --cores 0,1
  auras serve config.yaml --port 9000                       model: FOLDER and any option, by its name with _ for -

MODEL is the name of one that ships (auras list models), or the folder of a published vision-language model; it needs:
pip install 'auras_ros[serve]'. Fields of requests, errors and bounds: docs/serve.md. Only this machine reaches the
server unless --host says otherwise. With a token in --token-file or in AURAS_SERVE_TOKEN every request must have it
(Authorization: Bearer), but for /health. A server of this machine alone takes requests to localhost, 127.0.0.1, [::1]
and the names in --allowed-host.
"""
ENGINE_HELP = {
    "device": "where it computes: cpu, cuda, or auto (cuda if there is a GPU)",
    "length": "tokens of prompt and answer together; 0: the model's own, 8192 at most",
    "block": "tokens of a block of keys and values",
    "kv_mib": "memory for keys and values, MiB",
    "running": "requests that decode together",
    "waiting": "requests accepted beyond those; one more gets status 429",
    "prefill_tokens": "tokens of one prefill",
    "chunked": "divide a longer prompt into prefills of that size, within which answers go on",
    "prefix_cache": "use blocks of earlier prompts again",
    "image_cache_mib": "memory for embeddings of earlier images, MiB",
    "int8": "the decoder's layers multiply in 8 bits",
    "scheduler": "which stage runs next: interleaved:TOKENS, nova and others (docs/engine.md)",
    "stage_profile": "file of measured times, for nova and marginal on three cores or more",
    "tbt_ms": "bound on the time between tokens that nova and marginal plan by, ms",
    "answer_tokens": "of an answer in the mean, for nova's plan",
    "swap_layers": "physical layers that hold the vision encoder's in turn; 0: all stay in memory",
    "swap_folder": "where the file of those layers is; on a disk",
    "swap_core": "core of the thread that reads it; -1: any",
    "max_loras": "LoRA adapters in memory at once; by default as many as --lora-modules, up to 8; 8 with --lora-folder",
    "max_lora_rank": "largest rank of an adapter",
    "lora_policy": "which requests run, and which adapter is merged: per-forward, valora and others (docs/lora.md)",
    "lora_theta_ms": "how long valora, dlora and merge-only let a request wait whose adapter is not merged, ms",
    "lora_thetas": "other times for requests of some adapters: name=ms,name=ms",
    "lora_exact": "merged weights are a second copy, computed from the base model's; without it each change rounds",
    "max_merged_loras": "adapters whose merged weights are in memory at once, each as large as the decoder's layers",
    "lora_ways": "how adapters' products are multiplied: one way's name (CPU), or the file of a searched table",
}


def run(argv: list[str]) -> int:
    parser = command_parser("serve", __doc__, EXAMPLE)
    parser.add_argument("model", metavar="MODEL|CONFIG", help="a model's folder or name, or a YAML file of options")
    for name, each in OWN.items():
        if name != "model":
            _add(parser, each, each.metadata["description"])
    for name, each in ENGINE.items():
        _add(parser, each, ENGINE_HELP.get(name, "see docs/serve.md"))
    for name in NEEDLESS:  # vLLM's switches
        parser.add_argument(_flag(name), action="store_true", help=argparse.SUPPRESS)
    given = vars(parser.parse_args(argv))
    path = Path(given["model"])
    try:
        if path.is_file():
            chosen = {name: value for name, value in given.items() if name != "model"}
            given = in_our_names(read_options(path)) | chosen
        options, engine_options = make_options(given)
        options = replace(options, model=str(resources.checkpoint(options.model)))
    except (ValueError, OSError) as error:
        print_errors(error)
        return 2
    bound_heap(TENSOR_BLOCK)
    with non_blocking_output():
        return _serve(options, engine_options)


def _serve(options: ServeOptions, engine_options: Any) -> int:
    from auras_ros.serve.start import read_token, start

    try:
        token = read_token(options.token_file, os.environ.pop(TOKEN, None), options.api_key)
        if not options.is_local and not token:
            print_warnings([f"whoever reaches {options.host} may use this server: it has no token (--token-file)"])
            if not options.allowed_host:
                print_warnings(["so may any page in a browser of its network, unless --allowed-host names the server"])
        in_time = start(options, engine_options, token, lambda line: print(line, flush=True))
    except (ValueError, OSError) as error:
        print_errors(error)
        return 2
    if not in_time:
        print("error: the engine did not end in time", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # its threads would be waited for
    print("stopped", flush=True)
    return 0


def _add(parser: argparse.ArgumentParser, each: Field[Any], text: str) -> None:
    """An option of the field's type, absent unless it is given."""
    flags = [_flag(each.name), *(_flag(name) for name, own in VLLM_NAMES.items() if own == each.name)]
    common: dict[str, Any] = {"dest": each.name, "default": argparse.SUPPRESS}
    if isinstance(each.default, bool):
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, help=text, **common)
    elif each.name in LISTS:
        parser.add_argument(*flags, action="append", metavar=LISTS[each.name], help=text, **common)
    elif isinstance(each.default, tuple):
        parser.add_argument(*flags, type=_cores, metavar="N,N", help=text, **common)
    else:
        known = f" ({each.default})" if each.default != "" else ""
        metavar = "N" if isinstance(each.default, int) else each.name.upper()
        parser.add_argument(*flags, type=type(each.default), metavar=metavar, help=f"{text}{known}", **common)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _cores(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(core) for core in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}': expected core numbers, such as 0,1") from error
