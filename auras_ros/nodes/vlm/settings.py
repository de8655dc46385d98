"""The parameters of the vision-language model's node. Read at each configure, then frozen."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from auras_ros import resources
from auras_ros.engine.options import EngineOptions
from auras_ros.nodes.common.input_settings import StampRule, camera_topics, receipt_latency_ms, stamps
from auras_ros.nodes.vlm.question import StandingQuestion, read_standing
from auras_ros.parameters import ParameterError, core_numbers, parameter, remote_configuration
from auras_ros.repeated_lines import log_every_s
from auras_ros.topic_names import check_cameras, read_camera_topics

MOST = 2**20
MOST_KEPT = 1024
MOST_CAMERAS = 32  # each is a subscription
MOST_SLOTS = 8  # adapters in memory, where nobody says how many


@dataclass(frozen=True)
class VlmSettings:
    """Parameters of the node `vlm`. All but `autostart`, `log_every_s` and `remote_configuration` are read at the
    next configure and refused while it is active, but `loras`, which is changed at once where a model is configured.
    Those of the engine have the names and defaults of `EngineOptions`."""

    autostart: bool = parameter(False, "configure and activate at start; otherwise somebody else must do it")
    remote_configuration: bool = remote_configuration()
    checkpoint: str = parameter(
        "", "the vision-language model: a folder (docs/vlm.md), or the name of a shipped one", names_files=True
    )
    cameras: str = parameter("", "cameras that questions may be about, such as top,wrist: camera/<name>/image_raw")
    camera_topics: tuple[str, ...] = camera_topics()
    stamps: str = stamps()
    receipt_latency_ms: float = receipt_latency_ms()
    camera: str = parameter("", "of these, the camera of questions that name none; empty: they are about no image")
    system: str = parameter("", "what each conversation begins with, as the system's words; empty: nothing")
    standing: str = parameter(
        "",
        "questions that are asked again and again: a JSON list such as "
        '[{"name": "goal", "text": "Is the tee on its goal?", "camera": "top", "every_frames": 10}]',
    )
    frames_kept: int = parameter(
        0,
        "images of each camera, for questions about several `frames`; 0: as many as `standing` asks about",
        0,
        MOST_KEPT,
    )
    max_tokens: int = parameter(128, "length of an answer, where the question does not say it", 1, MOST)
    question_limit_bytes: int = parameter(4096, "a longer question is refused", 1, 16384)
    camera_age_limit_ms: float = parameter(350.0, "no question is asked about an older image", 1.0, 60000.0)
    max_age_ms: float = parameter(
        0.0, "an answer ends when its image is this old, with what there is; 0: no limit", 0.0, 3.6e6
    )
    stamp_ahead_ms: float = parameter(
        100.0, "how far a stamp may be ahead of this host's clock (cameras of other hosts); a later one is refused",
        1.0, 60000.0,
    )  # fmt: skip
    compressed: bool = parameter(False, "subscribe to .../image_raw/compressed instead of .../image_raw")
    log_every_s: float = log_every_s()
    dtype: str = parameter("auto", "type of the weights: float32, bfloat16, float16, or auto (on a CPU float32)")
    device: str = parameter(EngineOptions.device, "where it runs: cpu, cuda, or auto (cuda if there is a GPU)")
    threads: int = parameter(1, "intra-op threads of stages that take turns", 1, 64)
    cores: str = parameter("", "cores that the process runs on, such as 2,3; empty: any")
    scheduler: str = parameter(
        EngineOptions.scheduler,
        "which stage runs next: interleaved:TOKENS, nova and others (docs/engine.md)",
    )
    stage_profile: str = parameter(
        EngineOptions.stage_profile,
        "file of measured times, for nova and marginal on three cores or more",
        names_files=True,
    )
    tbt_ms: int = parameter(
        EngineOptions.tbt_ms, "bound on the time between tokens that nova and marginal plan by", 1, 60000
    )
    answer_tokens: int = parameter(
        EngineOptions.answer_tokens, "tokens of an answer in the mean, for nova's plan", 1, MOST
    )
    late_ms: float = parameter(
        10000.0, "a forward that takes longer is reported; after ten times as long the process ends and starts again",
        100.0, 600000.0,
    )  # fmt: skip
    length: int = parameter(
        EngineOptions.length, "tokens of prompt and answer together; 0: the model's, 8192 at most", 0, MOST
    )
    kv_mib: int = parameter(EngineOptions.kv_mib, "memory for keys and values, MiB", 1, MOST)
    block: int = parameter(EngineOptions.block, "tokens of a block of keys and values", 1, 1024)
    running: int = parameter(EngineOptions.running, "questions that are answered together", 1, 256)
    waiting: int = parameter(EngineOptions.waiting, "questions that wait beyond those; one more is refused", 0, 4096)
    prefill_tokens: int = parameter(EngineOptions.prefill_tokens, "tokens of one prefill", 1, MOST)
    chunked: bool = parameter(
        EngineOptions.chunked, "divide longer prompts into prefills of that size, within which answers go on"
    )
    prefix_cache: bool = parameter(EngineOptions.prefix_cache, "keep what earlier prompts began with")
    image_cache_mib: int = parameter(
        EngineOptions.image_cache_mib, "memory for the embeddings of earlier images, MiB", 0, MOST
    )
    int8: bool = parameter(EngineOptions.int8, "the decoder's layers multiply in 8 bits")
    swap_layers: int = parameter(
        EngineOptions.swap_layers,
        "physical layers that hold the vision encoder's in turn; 0: all stay in memory", 0, 1024,
    )  # fmt: skip
    swap_folder: str = parameter(
        EngineOptions.swap_folder, "folder, on a disk, for the file of those layers", names_files=True
    )
    swap_core: int = parameter(EngineOptions.swap_core, "core of the thread that reads it; -1: any", -1, 4095)
    loras: str = parameter(
        "",
        "LoRA adapters that questions may ask for: name=folder,name=folder; with remote_configuration they may be "
        "changed while it runs",
        names_files=True,
    )
    max_loras: int = parameter(
        EngineOptions.max_loras, "adapters in memory at once; 0: as many as `loras` names, 8 at most", 0, 256
    )
    max_lora_rank: int = parameter(EngineOptions.max_lora_rank, "largest rank of an adapter", 1, 1024)
    lora_policy: str = parameter(
        EngineOptions.lora_policy, "which questions run, and which adapter is merged (docs/lora.md)"
    )
    lora_theta_ms: int = parameter(
        EngineOptions.lora_theta_ms,
        "how long valora, dlora and merge-only let a question wait whose adapter is not merged",
        1,
        60000,
    )
    lora_thetas: str = parameter(
        EngineOptions.lora_thetas, "other times for questions of some adapters: name=ms,name=ms"
    )
    lora_exact: bool = parameter(
        EngineOptions.lora_exact,
        "merged weights are a second copy, computed from the base model's; without it each change rounds",
    )
    max_merged_loras: int = parameter(
        EngineOptions.max_merged_loras,
        "adapters whose merged weights are in memory at once, each as large as the decoder's layers",
        1,
        256,
    )
    lora_ways: str = parameter(
        EngineOptions.lora_ways,
        "how adapters' products are multiplied: one way's name (CPU), or the file of a searched table",
        names_files=True,
    )

    def camera_names(self) -> tuple[str, ...]:
        """Raises ParameterError."""
        names = [part.strip() for part in self.cameras.split(",")] if self.cameras.strip() else []
        if len(names) > MOST_CAMERAS:
            raise ParameterError(f"vlm: cameras: {len(names)} are more than {MOST_CAMERAS}")
        for name in names:
            if not name.isidentifier():
                raise ParameterError(f"vlm: cameras: {name!r} is not a name; expected names such as top,wrist")
        if len(set(names)) < len(names):
            raise ParameterError(f"vlm: cameras: {self.cameras!r} has a name twice")
        if self.camera and self.camera not in names:
            raise ParameterError(f"vlm: camera: {self.camera!r:.80} is not one of `cameras`: {self.cameras!r:.200}")
        return tuple(names)

    def topics_of_cameras(self) -> dict[str, str]:
        """Camera -> topic, of those that `camera_topics` names. Raises ParameterError."""
        topics = read_camera_topics("vlm", self.camera_topics)
        check_cameras("vlm", topics, self.camera_names())
        return topics

    def stamp_rule(self) -> StampRule:
        """Raises ParameterError."""
        return StampRule.read("vlm", self.stamps, self.receipt_latency_ms)

    def standing_questions(self) -> tuple[StandingQuestion, ...]:
        """Raises ParameterError."""
        try:
            return read_standing(self.standing, self.camera_names(), self.question_limit_bytes)
        except ValueError as error:
            raise error if isinstance(error, ParameterError) else ParameterError(f"vlm: {error}") from error

    def kept(self) -> int:
        """Images of each camera. Raises ParameterError if that is too few for a standing question."""
        needed = max((each.question.reach for each in self.standing_questions()), default=1)
        if self.frames_kept and self.frames_kept < needed:
            raise ParameterError(f"vlm: frames_kept: {self.frames_kept}, and `standing` reaches back {needed} images")
        if needed > MOST_KEPT:
            raise ParameterError(f"vlm: standing: it reaches back {needed} images, {MOST_KEPT} at most")
        return self.frames_kept or needed

    def core_numbers(self) -> list[int] | None:
        """Of the process. Raises ParameterError."""
        return core_numbers("vlm", "cores", self.cores)

    def engine_options(self) -> EngineOptions:
        """Raises ParameterError."""
        given = {each.name: getattr(self, each.name) for each in fields(EngineOptions)}
        given["max_loras"] = self.max_loras or min(MOST_SLOTS, len(self.adapter_folders()))
        return EngineOptions(**given)

    def adapter_folders(self) -> dict[str, Path]:
        """By the adapters' names. Raises ParameterError."""
        found: dict[str, Path] = {}
        for part in self.loras.split(",") if self.loras.strip() else []:
            name, _, folder = (each.strip() for each in part.partition("="))
            if not name or not folder:
                raise ParameterError(f"vlm: loras: expected name=folder, got {part.strip()!r}")
            if name in found:
                raise ParameterError(f"vlm: loras: '{name}' is there twice")
            found[name] = resources.adapter(folder)
        return found

    def check(self) -> None:
        """Check what does not need the model. Raises ParameterError."""
        self.kept()
        self.core_numbers()
        self.topics_of_cameras()
        self.stamp_rule()
        self.engine_options()
