"""The slow part of configure: the policy is read, checked and warmed up. No topics are used here."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from auras_ros import resources
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.identity import checkpoint_digest
from auras_ros.clock import MonotonicClock
from auras_ros.device import DeviceError, checked
from auras_ros.loading.pipeline import Pipeline, PipelineSettings, at_best, load_pipeline
from auras_ros.nodes.agent.overload import check_age
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.messages import host_id
from auras_ros.parameters import ParameterError
from auras_ros.pipeline.plan import PlanError, TooSlowError
from auras_ros.ros.refusals import SETTINGS_ERRORS
from auras_ros.topic_names import check_cameras

_OWN = (CheckpointError, DeviceError, ParameterError, PlanError, OSError)
BAD_SETTINGS_ERRORS: tuple[type[Exception], ...] = (*_OWN, *SETTINGS_ERRORS)  # invalid settings
TOO_SLOW_ERRORS = (TooSlowError,)  # of those, the ones that may pass: the machine was busy
TOLD_ERRORS = (DeviceError, ParameterError, PlanError)  # and those that other nodes are told in full


@dataclass(frozen=True)
class LoadedPlans:
    """pipelines: of the first plan, and of the fallback plan if there is one. digest: `checkpoint_digest`."""

    pipelines: tuple[Pipeline, ...]
    digest: str


def load_policy(settings: AgentSettings, session: str, say: Callable[[str], None]) -> LoadedPlans:
    """The pipelines of the first plan and of the fallback. say: is told each step."""
    settings.check()
    plans, cores, folder = settings.plans(), settings.core_numbers(), resources.checkpoint(settings.checkpoint)
    how = PipelineSettings(
        settings.seed, host_id(), session, settings.device, settings.dtype, settings.offload(),
        settings.threads, cores, str(settings.stamp_rule()),
    )  # fmt: skip
    checked("workers", cores, settings.threads)
    with ExitStack() as refused:  # what was made before a refusal is closed
        first = load_pipeline(folder, plans[0], how, MonotonicClock(), say)
        refused.callback(first.executor.close)
        cameras = [camera.name for camera in first.checkpoint.spec.cameras]
        check_cameras("agent", settings.topics_of_cameras(), cameras)
        if first.checkpoint.language is not None:
            say("tokenizer")
            first.checkpoint.language.prepare()
        pipelines = [first]
        for plan in plans[1:]:
            say("warm-up of the fallback plan")
            pipelines.append(first.beside(plan))
            refused.callback(pipelines[-1].executor.close)
            pipelines[-1].warm_up()
        for pipeline in pipelines:
            at_best(partial(_check_age, pipeline, settings.max_age_ms), pipeline.warm_up)
        digest = checkpoint_digest(folder)
        refused.pop_all()
    return LoadedPlans(tuple(pipelines), digest)


def _check_age(pipeline: Pipeline, max_age_ms: float) -> None:
    check_age(pipeline.plan, pipeline.executor.frame_ns, max_age_ms)


def unload(pipelines: tuple[Pipeline, ...]) -> None:
    """Close the pipelines' lanes. The caller drops the pipelines and calls `gc.collect`."""
    gc.unfreeze()
    for pipeline in pipelines:
        pipeline.executor.close()
