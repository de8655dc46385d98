"""Who is compared on a virtual clock: Nova, what the paper compares it with, and each one's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from auras_ros.bench.nova import a6000
from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler, StaticUnits
from auras_ros.engine.marginal import MarginalUnits
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.planner import SplitPlan, make_plan
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.scheduler import InterleavedScheduler, StageScheduler

TOKENS = sum(a6000.TOKENS) / 3  # of an answer, in the mean: the triangle's
THRESHOLDS, BUDGETS = (2, 3, 5, 8, 12, 16), (64, 96, 128, 160, 192, 256, 384, 512)
BETAS = ((2.0, 3.0), (3.0, 4.0), (6.0, 8.0), (8.0, 8.0))  # beside the plan's own: "between 2 and 8" (V-A5)
BOUNDS = (0.75, 0.9, 1.25, 1.5, 2.0, 3.0)  # times the setup's: S_min of 16, 14, 10, 8, 6 and 4 on the paper's device
FAIR, STARVED = 2.0, 1.5
OURS = "marginal"  # the family of this package's own rule: `worst_mean_e2e_gain` is its
BASELINES = ("pf-limit", "chunk", "multi-stream")  # the paper's
STATIC_AT = range(-1, 5)  # pending requests whose splits by equation 5 are tried as static ones


@dataclass(frozen=True)
class DeviceSetup:
    """What is simulated. tbt_ms: bound on the time between tokens, for Nova's own plan."""

    profile: StageProfile
    tbt_ms: float

    def plan(self, setting: tuple[float, ...] = ()) -> SplitPlan:
        """With a setting of Nova's: steps of equation 5 beside vision and beside prefill, or a bound on the time
        between tokens, ms, or the steps and then the bound. Raises ValueError if no split keeps the bound."""
        *betas, bound_ms = setting if len(setting) % 2 else (*setting, self.tbt_ms)
        plan = make_plan(self.profile, TOKENS, bound_ms)
        return replace(plan, beta_vision=betas[0], beta_prefill=betas[1]) if betas else plan


@dataclass(frozen=True)
class Contender:
    """A scheduler with its setting; () is the family's own."""

    family: str
    setting: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.family} {'/'.join(f'{each:.3g}' for each in self.setting)}".strip()

    def make(self, setup: DeviceSetup) -> StageScheduler:
        return MAKERS[self.family](setup, self.setting)

    def profile(self, setup: DeviceSetup) -> StageProfile:
        """The device as this scheduler finds it."""
        if self.family == "multi-stream" and self.setting:
            return contended(setup.profile, self.setting[0])
        return setup.profile


MARGINAL_TBT = 250.0 / a6000.Parameters.decode  # decodes alone: the engine's default there; baselines block longer


MAKERS: Mapping[str, Callable[[DeviceSetup, tuple[float, ...]], StageScheduler]] = {
    "nova": lambda setup, setting: NovaScheduler(setup.plan(setting)),
    "marginal": lambda setup, _: NovaScheduler(MarginalUnits(setup.profile, MARGINAL_TBT * setup.profile.decode)),
    "static": lambda _, units: NovaScheduler(StaticUnits(int(units[0]), int(units[1]))),
    "pf-limit": lambda _, threshold: PfLimitScheduler(int(threshold[0])),
    "chunk": lambda _, budget: ChunkScheduler(int(budget[0])),
    "multi-stream": lambda _, __: NovaScheduler(StaticUnits()),
    "interleaved": lambda _, __: InterleavedScheduler(1, chunked=False),
}
PAPER_SETTINGS = (Contender("pf-limit", (5,)), Contender("chunk", (128,)), Contender("multi-stream"))


def family_of(name: str, setup: DeviceSetup) -> list[Contender]:
    """Nova with every setting that is tried, as the baselines have theirs; of our rule there is one."""
    return [Contender(name, each) for each in (_nova_settings(setup) if name == "nova" else [()])]


def _nova_settings(setup: DeviceSetup) -> list[tuple[float, ...]]:
    """Every step at the setup's bound; at other bounds the plan's own steps and the largest. No plan twice."""
    steps: list[tuple[float, ...]] = [(), *BETAS] if setup.profile.units == a6000.UNITS else [()]
    others = [(*each, setup.tbt_ms * times) for times in BOUNDS for each in dict.fromkeys((steps[0], steps[-1]))]
    found = dict[SplitPlan, tuple[float, ...]]()
    for setting in (*steps, *others):
        with suppress(ValueError):  # no split keeps the bound
            found.setdefault(setup.plan(setting), setting)
    return [*found.values()]


def baselines(setup: DeviceSetup, ranged: bool) -> list[Contender]:
    """With every setting that is tried. ranged: Multi-Stream's slowdowns are not measured whole forwards', so it is
    tried with others too."""
    budgets = [each for each in BUDGETS if each < setup.profile.prompt] or [setup.profile.prompt]
    slowdowns = multi_stream(setup.profile) if ranged else ((),)
    return [
        *(Contender("pf-limit", (each,)) for each in THRESHOLDS),
        *(Contender("chunk", (each,)) for each in budgets),
        *(Contender("multi-stream", each) for each in slowdowns),
    ]


def statics(setup: DeviceSetup) -> list[Contender]:
    """Splits that stay: the pairs through which equation 5 goes, and two with more units for decode."""
    plan = setup.plan()
    pairs = dict.fromkeys((plan.beside_vision(at, 1), plan.beside_prefill(at, 1)) for at in STATIC_AT)
    return [Contender("static", pair) for pair in pairs]


def multi_stream(profile: StageProfile) -> tuple[tuple[float, ...], ...]:
    """How many times as long a decode takes on streams without partitions: as the profile says, two times, as if both
    stages got half of the device, and one and a half times as long as the profile says."""
    return (), (FAIR,), (STARVED * profile.shared.decode_by_vision / profile.decode,)


def contended(profile: StageProfile, slowdown: float) -> StageProfile:
    """Streams without partitions on which a decode takes so many times as long. All work that is done meanwhile stays
    what the profile says (table IV: 1.07 of one stage's alone): only how the stages divide it is uncertain, and with
    less work Multi-Stream could only be slower."""
    shared, prefill_ms = profile.shared, profile.prefill[profile.prompt]
    vision = _rest(profile.vision / shared.vision, profile.decode / shared.decode_by_vision, slowdown)
    prefill = _rest(prefill_ms / shared.prefill, profile.decode / shared.decode_by_prefill, slowdown)
    decode_ms = profile.decode * slowdown
    return replace(profile, shared=CorunTimes(profile.vision / vision, prefill_ms / prefill, decode_ms, decode_ms))


def _rest(other: float, decode: float, slowdown: float) -> float:
    """The speed that is left for the other stage."""
    return min(other + decode - 1 / slowdown, 1.0)
