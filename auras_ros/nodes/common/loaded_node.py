"""The life of a node that loads something for seconds: configure loads, activate starts at once, deactivate ends.

A lifecycle node. Configure reads the parameters and loads in a thread of its own, with progress in heartbeat and
diagnostics; what it refuses is said there and in the log, and the process runs on. The heartbeat tells others that the
process is alive and in which state. What is loaded, and what runs while active, is the subclass's.
"""

from __future__ import annotations

import gc
import socket
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import Any, ClassVar, TypeVar

from auras_ros.clock import MonotonicClock
from auras_ros.device import FolderError
from auras_ros.exit_status import BROKEN, may_pass
from auras_ros.nodes.common.diagnostics import Diagnostics
from auras_ros.nodes.common.heartbeat import Heartbeat
from auras_ros.nodes.common.loading import BackgroundLoad
from auras_ros.nodes.common.status import LoadedNodeStatus
from auras_ros.nodes.common.transitions import answer_illegal_transitions
from auras_ros.panics import ExtensionPanicError
from auras_ros.parameters import UnloadableError
from auras_ros.repeated_lines import set_log_interval
from auras_ros.ros import LifecycleNode, LifecycleState, Parameter, TransitionCallbackReturn
from auras_ros.ros.local_log import local_logger
from auras_ros.ros.msg import SetParametersResult
from auras_ros.ros.settings import current_parameters, declare_parameters, refusal

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
FILE_ERRORS = (FolderError, UnloadableError)  # their messages say what was found on the disk
FINALIZED = "finalized"
AT_START = ("autostart", "log_every_s")  # parameters that are read only then
POLL_S = 0.1  # how often configure reports its progress
STALL_S = 5.0
T = TypeVar("T")


class LoadedNode(LifecycleNode):
    """A subclass has `on_activate`, and what is abstract below. NAME: the node's. SETTINGS: its parameters, with
    `autostart` and `remote_configuration`. BAD_SETTINGS_ERRORS: of configure, for what was set; of these
    TOO_SLOW_ERRORS may pass by themselves, and TOLD_ERRORS are told to other nodes in full (`_told`), where they
    are no FILE_ERRORS.
    """

    NAME: ClassVar[str]
    SETTINGS: ClassVar[type[Any]]
    BAD_SETTINGS_ERRORS: ClassVar[tuple[type[Exception], ...]]
    TOO_SLOW_ERRORS: ClassVar[tuple[type[Exception], ...]] = ()
    TOLD_ERRORS: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, status: LoadedNodeStatus, asked: Sequence[int], **node_options: Any) -> None:
        """asked: not empty any more when the process should end; configure then aborts."""
        super().__init__(self.NAME, **node_options)
        answer_illegal_transitions(self)
        declare_parameters(self, self.SETTINGS, live=self.SETTINGS.__dataclass_fields__)
        set_log_interval(float(self.get_parameter("log_every_s").value))
        self.add_on_set_parameters_callback(self._on_set)
        self._life, self._stop_requested = status, asked
        self._monotonic = MonotonicClock()
        self._refused: Exception | None = None
        self._starting = False
        self._diagnostics = Diagnostics(self, socket.gethostname())
        self._qos = self._diagnostics.qos
        self._diagnostics.add_all(status.tasks())
        self._heartbeat = Heartbeat(status, self._qos)

    # -- the subclass's -----------------------------------------------------------------------------------

    def _configure(self, settings: Any) -> bool:
        """Load. Returns False if the process was asked to end meanwhile."""
        raise NotImplementedError

    def _stop(self, timeout_s: float = STALL_S) -> bool:
        """End what runs, if anything does. Returns whether it has ended."""
        raise NotImplementedError

    def _close(self) -> None:
        """Release what was loaded, if anything was. It has ended."""
        raise NotImplementedError

    # -- the process --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the heartbeat; with `autostart` configure and activate. Raises the error if configure refuses."""
        self._heartbeat.start()
        if not self.get_parameter("autostart").value:
            return
        self._starting = True
        for go in (self.trigger_configure, self.trigger_activate):
            if not self._stop_requested and go() != SUCCESS and not self._stop_requested:
                raise self._refused or RuntimeError(f"{self.NAME}: could not start; see the log")
        self._starting = False

    def working(self) -> bool:
        """Whether the heartbeat's thread is alive (it ends when what runs hangs or a worker fails), and the node not
        finalized: no transition leads out of that, so its process ends and the supervisor starts another."""
        return self._heartbeat.alive() and self._life.lifecycle != FINALIZED

    def halt(self) -> None:
        """End of the process: publish nothing more except a last heartbeat with the state `finalized`."""
        hung = self._heartbeat.hung
        if not hung:
            self._heartbeat.release_watchdog()
        self._stopped(0.0 if hung else STALL_S)
        self._heartbeat.stop()
        if not hung:
            self._set_state(FINALIZED)
            self._heartbeat.beat()

    # -- transitions (executor thread) --------------------------------------------------------------------

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._refused = None
        self._set_state("configuring")
        bad_settings: tuple[type[Exception], ...] = (*self.BAD_SETTINGS_ERRORS, ExtensionPanicError)
        try:
            ready = self._configure(current_parameters(self, self.SETTINGS))
        except bad_settings as error:
            self._refused = error.with_traceback(None)  # whose frames hold what was loaded
            if not self._starting:  # else `start` raises it
                self.get_logger().error(f"cannot configure: {self._told(error)}")
            if isinstance(error, self.TOO_SLOW_ERRORS) or may_pass(error):
                return TransitionCallbackReturn.ERROR  # the caller may try again: see `launching`
            self._set_state("unconfigured", f"refused: {self._told(error, log=False)}", wrong=True)
            return FAILURE
        self._set_state("inactive" if ready else "unconfigured")
        return SUCCESS if ready else FAILURE

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("deactivating")
        if not self._stopped():
            return TransitionCallbackReturn.ERROR
        self._set_state("inactive")
        return SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("cleaningup")
        self._unload()
        self._set_state("unconfigured")
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self._set_state("shuttingdown")
        if self._stopped():
            self._unload()
        self._set_state(FINALIZED)
        self.get_logger().warning(f"shut down by a transition: the process ends with status {BROKEN}")
        return SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release everything and return to unconfigured."""
        self._set_state("errorprocessing")
        if not self._stopped():
            self._set_state(FINALIZED, f"a {self._life.RUNS} did not end", wrong=True)
            return FAILURE
        self._unload()
        said = f"refused: {self._told(self._refused, log=False)}" if self._refused else "an error; see the log"
        self._set_state("unconfigured", said, wrong=True)
        return SUCCESS

    # -- for the subclass ---------------------------------------------------------------------------------

    def _set_state(self, lifecycle: str, doing: str = "", *, wrong: bool = False) -> None:
        self._life.set_state(lifecycle, doing, wrong)
        self._diagnostics.changed()

    def _load(self, load: Callable[[Callable[[str], None]], T]) -> T | None:
        """What `load(say)` returns, in a new session; None if the process was asked to end meanwhile."""
        loader, progress = BackgroundLoad(load), ""
        while not wait([loader.result], POLL_S).done:
            if loader.progress != progress:
                progress = loader.progress
                self._set_state("configuring", progress)
            if self._stop_requested:
                return None
        return loader.result.result()

    def _new_session(self) -> str:
        self._life.session = uuid.uuid4().hex[:12]
        return self._life.session

    def _stopped(self, timeout_s: float = STALL_S) -> bool:
        """Stop. Returns whether what ran has ended; otherwise the heartbeat's thread goes on checking it."""
        ended = self._stop(timeout_s)
        if ended:
            self._heartbeat.frames_ended()
        return ended

    def _told(self, error: Exception, *, log: bool = True) -> str:
        """What other nodes are told of a refusal: on the heartbeat, /diagnostics and /rosout, and in answers. An error
        that says what was found on the disk has one text for all of them, so that nobody learns by it which files
        exist; log: print the error itself on this machine."""
        if isinstance(error, self.TOLD_ERRORS) and not isinstance(error, FILE_ERRORS):
            return str(error)
        if log:
            local_logger(self).error(str(error))
        return f"{self.NAME}: what its parameters name cannot be loaded; the log on its own computer says why"

    def _unload(self) -> None:
        self._life.checkpoint = ""
        self._close()
        gc.collect()

    # -- requests (executor thread) -----------------------------------------------------------------------

    def _on_set(self, parameters: list[Parameter]) -> SetParametersResult:
        """Refuse settings while active: they are only read at configure, so a change would have no effect."""
        name, lifecycle = self.NAME, self._life.lifecycle
        for each in parameters:
            reason = refusal(self, self.SETTINGS, each)
            if each.name in AT_START:
                reason = f"{name}: {each.name}: can only be set at start-up"
            elif each.name in self.SETTINGS.__dataclass_fields__ and lifecycle not in ("unconfigured", "inactive"):
                reason = f"{name}: {each.name}: read at configure; the {name} is {lifecycle}: deactivate it first"
            if reason:
                return SetParametersResult(successful=False, reason=reason)
        return SetParametersResult(successful=True)
