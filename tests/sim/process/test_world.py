"""A world in a process of its own: the same episodes as in this one, and a named end whatever ends it.

Guards: a simulator's printing taken for an answer; a process that outlives whoever plays in it; a player that waits for
ever; our packages imported in an environment that has others.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auras_ros.child import process as child_process
from auras_ros.cli import list as list_command
from auras_ros.cli import sim as sim_command
from auras_ros.environments import OURS, Environment, MissingEnvironmentError
from auras_ros.evaluate.settings import EvaluationSettings
from auras_ros.nodes.common.config import bridge_alone
from auras_ros.parameters import parameter
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.process.world import ProcessWorld
from auras_ros.sim.world import ActionError, ActionRefusal, Sim, World, WorldLostError
from auras_ros.sim.worlds import SIMS, find
from tests.another_package import WORLD, code_of, install
from tests.sim.processes import as_process, ends, impatient, kill, pid_of

ROOT = Path(__file__).parents[3]
TEXTS = ["pusht", "pusht-drift", "reach", "reach:point_step_m=0.05"]

# A world that does whatever its options say; in a module of its own, as another package's.
SPY = """
import os, sys
import numpy as np
from auras_ros.sim.world import ActionChannel, StepResult, World, WorldCamera

class SpyWorld(World):
    name = "spy"
    control_dt_ms = 50
    cameras = ()
    channels = (ActionChannel("x", "m", -1.0, 1.0),)

    def __init__(self, start="", step="", cameras=0, pair=()):
        exec(start, {"self": self})
        self.code, self.pair = step, pair
        self.cameras = tuple(WorldCamera(f"c{i}", 4, 3, (1.0, 2.0, 3.0, 4.0)) for i in range(cameras))

    @staticmethod
    def check(): pass

    def reset(self, seed): pass

    def step(self, action):
        exec(self.code, {"self": self})
        return StepResult(np.float32(0.1), np.bool_(True), {"half": np.float32(0.5)}, "", {"count": np.int64(7)})

    def state(self): return {"x": np.float32(0.1)}

    def image(self, camera, height, width): return np.full((height, width, 3), int(camera[1]), np.uint8)

    @property
    def instruction(self): return repr((self.pair, sorted(sys.modules), sys.path, os.getcwd()))

    def close(self): print("closed")
"""


@dataclass(frozen=True)
class SpyOptions:
    start: str = parameter("", "code when it is made")
    step: str = parameter("", "code of a step")
    cameras: int = parameter(0, "how many", 0, 9)
    pair: tuple[int, ...] = parameter((), "numbers")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(WORLD, tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """spy(**options): such a world in a process."""
    (tmp_path / "spy_world.py").write_text(SPY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "spy_world", raising=False)
    import spy_world  # type: ignore[import-not-found]

    yield lambda **options: Sim("a spy", spy_world.SpyWorld, SpyOptions(**options), OURS).make()
    sys.modules.pop("spy_world", None)


def episode(world: World, seed: int, steps: int = 12) -> list[Any]:
    """All that can be seen in it. The actions go from one corner to the other."""
    world.reset(seed)
    seen: list[Any] = []
    for share in np.linspace(0.1, 0.9, steps):
        action = np.array([each.low + share * (each.high - each.low) for each in world.channels])
        made = world.step(action)
        images = [world.image(each.name, each.height, each.width).tobytes() for each in world.cameras]
        seen.append((made.reward, made.success, dict(made.sub_goals), dict(world.state()), world.instruction, images))
    return seen


# -- the protocol -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("text", TEXTS)
def test_the_same_seeds_give_the_same_episodes_here_and_over_the_wire(text: str) -> None:
    here, there = find(text).make(), as_process(text).make()
    assert isinstance(there, ProcessWorld)
    for seed in (3, 7, 3):
        assert episode(there, seed) == episode(here, seed)
    for name in ("name", "frame", "control_dt_ms", "cameras", "channels", "sub_goals", "live"):
        assert getattr(there, name) == getattr(here, name)
    there.close()


def test_an_image_is_ours_to_write_to_and_of_the_size_that_was_asked_for() -> None:
    world = as_process("pusht").make()
    world.reset(1)
    image = world.image("top", 48, 48)
    assert (image.shape, image.dtype) == ((48, 48, 3), np.uint8)
    image[:] = 0
    assert world.image("top", 48, 48).any()
    with pytest.raises(ValueError, match="its camera is 'top' and square"):
        world.image("top", 48, 64)
    world.close()


@pytest.mark.parametrize(
    ("action", "refusal"),
    [
        ([1.0], ActionRefusal.SIZE),
        ([[1.0, 2.0]], ActionRefusal.SIZE),
        ([], ActionRefusal.SIZE),
        ([1.0, float("nan")], ActionRefusal.NOT_FINITE),
        ([float("-inf"), 1.0], ActionRefusal.NOT_FINITE),
        ([600.0, 1.0], ActionRefusal.OUT_OF_RANGE),
    ],
)
def test_an_action_is_refused_as_the_world_refuses_it(action: Any, refusal: ActionRefusal) -> None:
    worlds = [find("pusht").make(), as_process("pusht").make()]
    said = []
    for world in worlds:
        world.reset(3)
        before = world.state()
        with pytest.raises(ActionError) as refused:
            world.step(np.array(action))
        assert refused.value.refusal is refusal
        assert world.state() == before
        said.append(str(refused.value))
    assert said[0] == said[1]
    worlds[1].close()


def test_what_may_be_disturbed_is() -> None:
    here, there = find("pusht").make(), as_process("pusht").make()
    things = '[{"x": 256, "y": 256, "radius": 40, "rgb": [220, 40, 40]}]'
    for world in (here, there):
        world.reset(1)
        world.disturb("things", things)
    assert np.array_equal(there.image("top", 96, 96), here.image("top", 96, 96))
    with pytest.raises(ValueError, match="pusht: drift_px cannot be changed while it runs"):
        there.disturb("drift_px", 1.0)
    with pytest.raises(ValueError, match="pusht: things: not JSON"):
        there.disturb("things", "{")
    with pytest.raises(ValueError, match="pusht: disturb: Object of type object is not JSON serializable"):
        there.disturb("things", object())
    assert there.state() == here.state()  # nothing of it was sent
    there.close()


def test_what_an_instance_declares_and_its_numbers_arrive_as_plain_ones(spy: Any) -> None:
    world = spy(cameras=2, pair=(3, 4))
    assert [(each.name, each.width, each.height, each.intrinsics) for each in world.cameras] == [
        (f"c{i}", 4, 3, (1.0, 2.0, 3.0, 4.0)) for i in range(2)
    ]
    made = world.step(np.array([0.5]))
    assert (made.reward, made.success, made.sub_goals) == (float(np.float32(0.1)), True, {"half": 0.5})
    assert [type(each) for each in (made.reward, made.success, made.statistics["count"])] == [float, bool, float]
    assert made.statistics == {"count": 7.0}
    assert (world.image("c1", 2, 5) == 1).all()
    assert world.instruction.startswith("((3, 4), ")
    world.close()


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("import no_such_simulator", ModuleNotFoundError, "No module named 'no_such_simulator'"),
        ("raise ValueError('no such arm')", ValueError, "^no such arm$"),
        ("raise KeyError('arm')", RuntimeError, "^KeyError: 'arm'$"),
        ("raise RuntimeError('no OpenGL')", RuntimeError, "^no OpenGL$"),
    ],
)
def test_an_error_of_the_world_is_raised_here(spy: Any, code: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as when_made:
        spy(start=code)
    world = spy(step=code)
    with pytest.raises(error, match=said):
        world.step(np.array([0.0]))
    assert world.state()  # it is not lost
    world.close()
    if isinstance(when_made.value, ModuleNotFoundError):
        assert when_made.value.name == "no_such_simulator"


def test_what_the_simulator_prints_is_no_answer(spy: Any) -> None:
    """By Python, by C, by its children; more than a pipe holds, and for ever: what is kept of it is bounded."""
    noise = "print('x' * 300_000); os.write(1, b'y' * 300_000); os.system('echo z')"
    world = spy(start=f"import os; {noise}", step=f"import os; {noise}")
    for _ in range(4):
        assert world.step(np.array([0.0])).success
        assert os.fstat(world.process._printed).st_size < 2 * child_process.PRINTED_BYTES
    world.close()


def test_it_imports_what_it_needs_and_finds_nothing_of_ours(spy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by PYTHONPATH nor by where it was started: an environment has its own versions of everything."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    world = spy()
    _, modules, path, _ = eval(world.instruction)  # noqa: S307  (of our own class)
    world.close()
    ours = {name for name in modules if name.startswith("auras_ros")}
    parts = {
        "child",
        "child.wire",
        "environments",
        "own_environment",
        "sim",
        "sim.process",
        "sim.process.served",
        "sim.world",
    }
    assert ours == {"auras_ros", *(f"auras_ros.{each}" for each in parts)}
    heavy = {"torch", "rclpy", "cyclonedds", "yaml", "cv2", "gymnasium", "scipy", "PIL", "importlib_metadata"}
    assert heavy & set(modules) == set()
    sims = [above / "sim" for above in (ROOT, ROOT / "auras_ros")]
    assert not {"", str(ROOT), *map(str, sims), *(str(each / "process") for each in sims)} & set(path)


# -- its end ------------------------------------------------------------------------------------------------


def test_a_killed_process_is_named_with_how_it_ended_and_its_last_lines(spy: Any) -> None:
    world = spy(start="print('loading the arm')")
    world.step(np.array([0.0]))
    kill(world)
    with pytest.raises(
        WorldLostError, match=r"^spy: the world's process was ended by SIGKILL \(step\)\n  loading the arm$"
    ):
        world.step(np.array([0.0]))
    with pytest.raises(WorldLostError, match="ended by SIGKILL"):  # and from then on
        world.state()
    world.close()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import os, sys; print('bad mesh', file=sys.stderr); os._exit(7)",
            r"ended with status 7 \((step|make)\)\n  bad mesh",
        ),
        ("import os; os.abort()", "was ended by SIGABRT"),
        ("import sys; sys.exit('no display')", r"ended with status 1(?s:.*)\n  no display"),
    ],
)  # fmt: skip
def test_a_process_that_ends_itself_says_how(spy: Any, code: str, said: str) -> None:
    with pytest.raises(WorldLostError, match=said):
        spy(start=code)
    world = spy(step=code)
    with pytest.raises(WorldLostError, match=said):
        world.step(np.array([0.0]))


def test_a_process_that_is_stopped_is_lost_after_the_bound_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    impatient(monkeypatch)
    world = as_process("pusht").make()
    world.reset(3)
    with ends(pid_of(world)):
        kill(world, signal.SIGSTOP)
        with pytest.raises(WorldLostError, match=r"^pusht: the world's process has said nothing for 2 s \(state\)$"):
            world.state()


SLOW = """
import time, numpy
def image(camera, height, width):
    time.sleep(1.5)
    return numpy.zeros((height, width, 3), numpy.uint8)
self.image = image
"""


def test_the_first_picture_may_take_as_long_as_the_start(spy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOOK_S", 0.1), ("START_LOOKS", 1200), ("ANSWER_LOOKS", 5)):
        monkeypatch.setattr(child_process, name, value)
    world = spy(start=SLOW, cameras=1)
    assert world.image("c0", 3, 4).shape == (3, 4, 3)
    with pytest.raises(WorldLostError, match=r"has said nothing for 0\.5 s \(image\)$"):
        world.image("c0", 3, 4)


def test_an_interrupted_call_leaves_no_answer_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = as_process("pusht").make()
    world.reset(3)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with ends(pid_of(world)), monkeypatch.context() as patch:
        patch.setattr(child_process, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.state()
    with pytest.raises(WorldLostError, match="was interrupted"):
        world.state()


def test_close_ends_it_in_order_even_twice(spy: Any) -> None:
    world = spy()
    printed = os.dup(world.process._printed)
    with ends(pid_of(world)):
        world.close()
    assert world.process._process.returncode == 0
    assert os.pread(printed, 100, 0) == b"closed\n"
    os.close(printed)
    world.close()
    with pytest.raises(WorldLostError, match="spy: the world is closed"):
        world.state()


def test_a_stopped_one_is_killed_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "ENDING_S", 0.2)
    world = as_process("pusht").make()
    with ends(pid_of(world)):
        kill(world, signal.SIGSTOP)
        world.close()


def test_close_lets_go_of_who_waits_for_an_answer(spy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge closes its world while its thread may be in a step."""
    monkeypatch.setattr(child_process, "ENDING_S", 0.2)
    world, said = spy(step="import time; print('in it', flush=True); time.sleep(600)"), list[str]()

    def step() -> None:
        try:
            world.step(np.array([0.0]))
        except WorldLostError as error:
            said.append(str(error))

    waiting = threading.Thread(target=step)
    waiting.start()
    while not os.fstat(world.process._printed).st_size:
        waiting.join(0.01)
    world.close()
    waiting.join()
    assert said == ["spy: the world is closed"]


def test_nobody_has_it_any_more(spy: Any) -> None:
    world = spy()
    with ends(pid_of(world)):
        del world
        gc.collect()


@pytest.mark.parametrize("where", ["main", "thread"])
def test_it_ends_with_a_player_that_is_killed(where: str) -> None:
    """From a thread too, of which the kernel does not know that it lives as long as its process."""
    code = f"""
import threading, time
from tests.sim.processes import as_process
made = []
thread = threading.Thread(target=lambda: made.append(as_process("pusht").make()))
thread.run() if {where!r} == "main" else (thread.start(), thread.join())
made[0].reset(1)
print(made[0].process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as player:
        assert player.stdout is not None
        pid = int(player.stdout.readline())
        with ends(pid):
            player.kill()


# -- what is known without it -------------------------------------------------------------------------------


def test_what_a_name_stands_for_is_known_without_a_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SIMS, "pusht", replace(SIMS["pusht"], environment=Environment("nowhere", ("a==1",))))
    monkeypatch.setattr(child_process, "_start", None)
    assert list_command.run(["simulators"]) == 0
    assert "Push-T" in capsys.readouterr().out
    sim = find("pusht:drift_px=0.7")
    assert "camera/top/image_raw" in sim_command.greeting(sim)
    assert vars(bridge_settings(sim)(seed=3))["drift_px"] == 0.7
    assert bridge_alone("pusht").supervision.started == ("pusht",)
    assert EvaluationSettings("c", "quick", "pusht").dt_ms == 100


def test_without_its_environment_the_error_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path))
    sim = replace(find("pusht"), environment=Environment("kitchen", ("a==1",)))
    for asked in (sim.check, sim.make):
        said = (
            f"^pusht: its environment 'kitchen' is not in {tmp_path}/kitchen; make it: auras doctor --sim pusht --fix$"
        )
        with pytest.raises(MissingEnvironmentError, match=said):
            asked()


@pytest.mark.usefixtures("package")
def test_the_page_that_shows_how_is_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AURAS_ROS_ENVIRONMENTS", str(tmp_path))
    made: dict[str, Any] = {}
    exec(code_of(WORLD)[1], made)
    with pytest.raises(
        MissingEnvironmentError, match=r"reach: its environment 'arm' .*: auras doctor --sim reach --fix"
    ):
        made["reach"].check()


def test_a_class_that_no_other_process_can_import_is_named() -> None:
    class Local(SIMS["pusht"].world):  # type: ignore[name-defined, misc]
        pass

    for module in ("__main__", __name__):
        Local.__module__ = module
        with pytest.raises(ValueError, match=r"^pusht: no other process can import .*Local: put it at the top"):
            replace(find("pusht"), world=Local, environment=OURS).make()
