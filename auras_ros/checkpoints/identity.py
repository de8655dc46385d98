"""The digest by which the actuator knows that the agent runs the checkpoint whose action contract it enforces.

Both compute it from their own copy of the files, so a path says nothing and the copies may be on two computers. It
needs no torch, because the actuator computes it, and it takes milliseconds however large the weights are.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.manifest import MANIFEST

DIGEST_CHARACTERS = 64
PATTERNS = ("*.json", "*.jinja", "*.safetensors")  # files of other libraries that decide what a policy does
PIECES = 64  # read of a large file
PIECE_BYTES = 64 * 1024


def checkpoint_digest(folder: Path) -> str:
    """64 hex digits. Raises CheckpointError or OSError.

    With a policy.json it is that file's SHA-256. The file has the action contract and the SHA-256 of the weights, which
    the agent checks when it loads them: another policy has another digest, and only this file is read.

    A folder of another library has no file that names its weights' hashes. There it is the SHA-256 of the names, sizes
    and contents of its JSON files, templates and weights; of a file of more than 4 MiB only 64 pieces of 64 KiB are
    read, evenly spaced. That tells two trainings apart, but not weights of which somebody changed a few on purpose.
    """
    manifest = folder / MANIFEST
    if manifest.is_file():
        return hashlib.sha256(manifest.read_bytes()).hexdigest()
    whole = hashlib.sha256()
    for path in sorted(path for pattern in PATTERNS for path in folder.glob(pattern)):
        if not path.is_file():  # reading a pipe would wait without end
            raise CheckpointError(f"{path}: is not a regular file")
        whole.update(f"{path.name} {_file_digest(path)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def _file_digest(path: Path) -> str:
    size_bytes = path.stat().st_size
    content = hashlib.sha256(f"{size_bytes}\n".encode())
    with path.open("rb") as file:
        if size_bytes <= PIECES * PIECE_BYTES:
            content.update(file.read(PIECES * PIECE_BYTES))
            return content.hexdigest()
        for number in range(PIECES):  # the first piece begins the file, the last one ends it
            file.seek((size_bytes - PIECE_BYTES) * number // (PIECES - 1))
            content.update(file.read(PIECE_BYTES))
    return content.hexdigest()
