"""From options to a server: the folder is opened, the engine is made and warmed up, requests are answered."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path

import uvloop

from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.device.cores import in_own_thread, occupy
from auras_ros.device.make import kind_of
from auras_ros.engine.build import make_engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.replicas import Replicas
from auras_ros.serve.app import make_app
from auras_ros.serve.options import ServeOptions
from auras_ros.serve.server import listen, serve
from auras_ros.serve.service import ModelService, ServedEngine
from auras_ros.text_file import TextFileError, read_text_file

MOST_TOKEN_BYTES = 4096
Say = Callable[[str], None]


class TokenError(ValueError):
    """A token that cannot be used; the text says where it came from and why."""


def read_token(file: str, environment: str | None, given: str = "") -> str:
    """The token that is given, else the one of a file, else the environment's; empty: none. Raises TokenError or
    OSError."""
    if not file and environment is None and not given:
        return ""
    where = "api_key" if given else file or "AURAS_SERVE_TOKEN"
    try:
        text = given or (read_text_file(Path(file), MOST_TOKEN_BYTES) if file else environment or "").strip()
    except UnicodeDecodeError:  # whose text has a byte of the token
        text = ""
    except TextFileError as error:
        raise TokenError(f"{where}: {error}") from error
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise TokenError(f"{where}: expected one token of printable ASCII letters, without spaces")
    return text


def start(options: ServeOptions, engine_options: EngineOptions, token: str, say: Say) -> bool:
    """Serves until SIGINT or SIGTERM. Returns whether it ended in time. Raises CheckpointError, DeviceError, ValueError
    or OSError before it is ready."""
    if options.lora_folder and not Path(options.lora_folder).is_dir():
        raise ValueError(f"serve: lora_folder: {options.lora_folder}: no such folder")
    bound = listen(options.host, options.port)  # before the weights are read: it costs nothing to know
    with bound:
        if options.cores:
            occupy("serve", frozenset(options.cores), len(options.cores))
        engine, dtype = _engine(options, engine_options)
        service = ModelService(engine, options, dtype)
        with ExitStack() as refused:
            refused.callback(service.close)
            service.adapters.add(options.lora_modules)
            refused.pop_all()
        where = f"[{options.host}]" if ":" in options.host else options.host
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        line = f"serving {service.name} ({service.dtype}) at http://{where}:{bound.getsockname()[1]} on cores {cores}"
        line += f", {options.replicas} replicas" if options.replicas > 1 else ""
        names = ", ".join(service.adapters.names())
        line += f", adapters {names}" if names else ""
        app = make_app(service, token)
        gc.collect()
        gc.freeze()  # else a body of many lists makes the garbage collector go through all of torch, for half a second
        return uvloop.run(serve(app, service, bound, lambda: say(f"{line}; Ctrl-C stops it")))


def _engine(options: ServeOptions, engine_options: EngineOptions) -> tuple[ServedEngine, str]:
    """With the type of its weights."""
    folder, kind = Path(options.model), kind_of(engine_options.device)
    if options.replicas > 1:
        if kind != "cpu":
            raise ValueError(f"serve: replicas: {options.replicas} on one GPU: each is for cores of its own")
        shares = divided(sorted(os.sched_getaffinity(0)), options.replicas)
        replicas = Replicas.start(folder, options.dtype, engine_options, shares)
        return replicas, replicas.dtype
    checkpoint = in_own_thread(partial(open_vlm, folder, options.dtype, kind))
    dtype = next(checkpoint.model.parameters()).dtype
    engine = make_engine(checkpoint, engine_options)
    engine.start()
    return engine, str(dtype).removeprefix("torch.")


def divided(cores: Sequence[int], replicas: int) -> list[tuple[int, ...]]:
    """The cores in as many shares of almost one size. Raises ValueError if there are too few."""
    if replicas > len(cores):
        raise ValueError(f"serve: replicas: {replicas} on {len(cores)} cores: each needs one")
    ends = [len(cores) * number // replicas for number in range(replicas + 1)]
    return [tuple(cores[begin:end]) for begin, end in pairwise(ends)]
