"""The sides of the comparison, each as one command that serves a model folder on a port.

All have the same cores, float32, at most eight requests at a time, and no cache of prompts or images.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from auras_ros.bench.peers_vlm.environment import openmp
from auras_ros.bench.peers_vlm.models import LENGTH
from auras_ros.bench.peers_vlm.server import ServerCommand

OURS, VLLM, TRANSFORMERS = "auras", "vllm", "transformers"
AT_ONCE = 8
SERVE = (sys.executable, "-m", "auras_ros.cli.main", "serve")
TRANSFORMERS_SERVER = Path(__file__).with_name("transformers_server.py")
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# As many waiting requests as vLLM takes in practice, and its memory for keys and values.
OUR_OPTIONS = (
    f"--dtype float32 --running {AT_ONCE} --waiting 1024 --length {LENGTH} --kv-mib 1024 --no-prefix-cache"
    " --image-cache-mib 0"
).split()
IN_TURN, SIDE_BY_SIDE, REPLICAS = f"{OURS} in turn", f"{OURS} side by side", f"{OURS} replicas"
EACH_CORE = ", one process per core"  # beyond what the comparison promises: a peer as several servers
VLLM_FORMS = {"eager": ["--enforce-eager"], "compiled": list[str]()}
VLLM_OPTIONS = (
    f"--host 127.0.0.1 --dtype float32 --max-num-seqs {AT_ONCE} --max-model-len {LENGTH} --no-enable-prefix-caching"
    " --mm-processor-cache-gb 0 --disable-uvicorn-access-log"
).split()
MEDIA = '{"image": 1, "video": 0}'  # else it reserves memory for videos


def library(side: str) -> str:
    """Of a side's name: "vllm" of "vllm eager"."""
    return side.partition(" ")[0]


def is_each_core(side: str) -> bool:
    return side.endswith(EACH_CORE)


def scheduled(python: Path, folder: Path, model: str, scheduler: str) -> ServerCommand:
    """`auras serve` with this scheduler."""
    words = [*SERVE, str(folder), "--name", model, "--port", "{port}", *OUR_OPTIONS, "--scheduler", scheduler]
    return ServerCommand(f"{OURS} {scheduler}", words, openmp_of(python), own=True)


def ours(python: Path, folder: Path, model: str, tiny: bool, given: str) -> Sequence[ServerCommand]:
    """`auras serve` whose stages take turns on all cores. Of a tiny model also, if there are two cores, with decode on
    the last one beside the others, and with a replica on each core: with large products both are slower, and more
    servers of a large model do not fit into memory. given: a command line with {folder}, {model} and {port} instead."""
    if given:
        words = [word.replace("{folder}", str(folder)).replace("{model}", model) for word in shlex.split(given)]
        return [ServerCommand(OURS, words, openmp_of(python), own=True)]
    words = [*SERVE, str(folder), "--name", model, "--port", "{port}", *OUR_OPTIONS]
    environment = openmp_of(python)
    forms = [ServerCommand(IN_TURN, words, environment, own=True)]
    cores = len(os.sched_getaffinity(0))
    if tiny and cores > 1:
        forms.append(ServerCommand(SIDE_BY_SIDE, [*words, "--scheduler", "static:1"], environment, own=True))
        replicas = ["--replicas", str(cores)]
        forms.append(ServerCommand(REPLICAS, [*words, *replicas], environment, own=True))
    return forms


def vllm(python: Path, folder: Path, model: str, form: str) -> ServerCommand:
    environment = {
        **OFFLINE,
        **openmp_of(python),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "{cores}",
    }
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", "{port}"]
    argv += ["--served-model-name", model, "--limit-mm-per-prompt", MEDIA, *VLLM_OPTIONS, *VLLM_FORMS[form]]
    return ServerCommand(f"{VLLM} {form}", argv, environment)


def transformers(python: Path, folder: Path, batch: int, threads: int) -> ServerCommand:
    argv = [str(python), str(TRANSFORMERS_SERVER), str(folder), "--port", "{port}"]
    argv += ["--batch", str(batch), "--threads", str(threads)]
    form = "one by one" if batch == 1 else f"batches of {batch}"
    return ServerCommand(f"{TRANSFORMERS} {form}", argv, OFFLINE | openmp_of(python))


def each_core(command: ServerCommand) -> ServerCommand:
    shares = [frozenset({core}) for core in sorted(os.sched_getaffinity(0))]
    return replace(command, name=f"{command.name}{EACH_CORE}", shares=shares)


def openmp_of(python: Path) -> dict[str, str]:
    """All get the OpenMP library that comes with vLLM: with torch's own, threads that wait burn a core."""
    preloaded = openmp(python)
    return {"LD_PRELOAD": str(preloaded)} if preloaded is not None else {}


def all_sides(python: Path, folder: Path, model: str, tiny: bool, given: str) -> Sequence[ServerCommand]:
    """The first one is the reference for tokens. Of a tiny model the peers also as a server on each core, since ours
    has such a form."""
    cores = len(os.sched_getaffinity(0))
    sides = [
        transformers(python, folder, 1, cores),
        transformers(python, folder, AT_ONCE, cores),
        *(vllm(python, folder, model, form) for form in VLLM_FORMS),
    ]
    if tiny and cores > 1:
        sides += [each_core(transformers(python, folder, AT_ONCE // cores, 1)), each_core(sides[-1])]
    return [*sides, *ours(python, folder, model, tiny, given)]
