"""Which LeRobot wrote a folder, as far as its files tell: no LeRobot writes its own version down.

Keys of config.json and steps of the processors tell the oldest release that can have written them. pi0 and pi0.5 are
told apart by their tensors too: LeRobot 0.4 stores the embedding of words and the head over words as one tensor, 0.5
and later as two. robot.json's `lerobot_version` says it where no file does. This module decides no meaning: the
translators ask it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError

Release = tuple[int, int, int]
OLDEST, NEWEST = (0, 4, 4), (0, 6, 1)  # the releases whose actions were compared with ours, and those between
KNOWN = "LeRobot 0.4.4 to 0.6.1 are known"
READABLE = (0, 4, 0)  # older folders have other keys and tensors
KEYS_SINCE: Mapping[str, Release] = {
    "use_relative_actions": (0, 5, 1),
    "relative_exclude_joints": (0, 5, 1),
    "action_feature_names": (0, 5, 1),
    "pretrained_revision": (0, 6, 0),
}
STEPS_SINCE: Mapping[str, Release] = {
    "relative_actions_processor": (0, 5, 1),
    "absolute_actions_processor": (0, 5, 1),
}
TWO_TENSORS: Release = (0, 5, 0)
PALIGEMMA = "model.paligemma_with_expert.paligemma."
WORDS, HEAD = f"{PALIGEMMA}model.language_model.embed_tokens.weight", f"{PALIGEMMA}lm_head.weight"


@dataclass(frozen=True)
class WriterVersion:
    """The releases that can have written a folder."""

    since: Release | None = None  # the oldest of them; None if nothing tells
    before: Release | None = None  # the first that is too new; None if nothing tells
    reason: str = ""  # what tells it

    def __str__(self) -> str:
        if self.since is not None:
            exact = self.before == _next(self.since)
            name = f"LeRobot {shown_release(self.since)}{'' if exact else ' or later'}"
            if self.since > NEWEST:
                name += f", newer than {shown_release(NEWEST)}, the newest that was compared"
            return f"{name} ({self.reason})"
        if self.before is not None:
            return f"LeRobot before {shown_release(self.before)} ({self.reason})"
        return "no file tells which LeRobot wrote it"

    def is_since(self, release: Release) -> bool | None:
        """Whether this release or a later one wrote the folder; None if nothing tells."""
        if self.since is not None and self.since >= release:
            return True
        if self.before is not None and self.before <= release:
            return False
        return None


def _next(release: Release) -> Release:
    major, minor, patch = release
    return major, minor, patch + 1


def shown_release(release: Release) -> str:
    """As LeRobot writes it, "0.5.0"."""
    return ".".join(map(str, release))


def read_release(text: str | None, file: Path) -> Release | None:
    """`lerobot_version` of robot.json, "0.5.0" or "0.5". file: robot.json, for errors. Raises CheckpointError."""
    if text is None:
        return None
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text)
    release = (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0)) if numbers else None
    if release is None or release < READABLE:
        raise CheckpointError(f'{file}: lerobot_version: {text!r} is not a release such as "0.4.4" or "0.5.0"; {KNOWN}')
    return release


def version_by_files(config: Mapping[str, Any], steps: Collection[str], tensors: Collection[str]) -> WriterVersion:
    """What config.json, the names of the processors' steps and the names of the tensors tell. tensors: empty if they
    are of another folder (an adapter's base)."""
    signs = [(KEYS_SINCE[key], f"config.json has '{key}'") for key in sorted(config.keys() & KEYS_SINCE.keys())]
    signs += [(STEPS_SINCE[name], f"the step '{name}'") for name in sorted(set(steps) & STEPS_SINCE.keys())]
    if signs:
        since, reason = max(signs, key=lambda sign: sign[0])
        return WriterVersion(since=since, reason=reason)
    if config.get("type") in ("pi0", "pi05") and HEAD in tensors:
        if WORDS in tensors:
            reason = "the embedding and the head of its language model are two tensors"
            return WriterVersion(since=TWO_TENSORS, reason=reason)
        return WriterVersion(
            before=TWO_TENSORS, reason="the embedding and the head of its language model are one tensor"
        )
    return WriterVersion()


def settled_version(by_files: WriterVersion, said: Release | None, file: Path) -> WriterVersion:
    """What robot.json says, or else what the files tell. file: robot.json, for errors.

    A release that is older than the files can be is refused (CheckpointError). A newer one is taken: weights that 0.4
    stored, or that were converted from openpi's, can have been trained by a later one.
    """
    if said is None:
        return by_files
    if by_files.since is not None and said < by_files.since:
        raise CheckpointError(f"{file}: lerobot_version: {shown_release(said)}, but the folder is of {by_files}")
    reason = "robot.json says so"
    if by_files.before is not None and said >= by_files.before:
        reason += f", although {by_files.reason}, as {shown_release(OLDEST)} stores them"
    return WriterVersion(said, _next(said), reason)
