"""Push-T: gym-pusht's table, standing still, drifting or jumping, and with things laid on it."""

from auras_ros.sim.pusht.world import PushTWorld as PushTWorld
