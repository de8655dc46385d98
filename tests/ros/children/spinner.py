"""Spins until it ends, and says how: the names of the exception and of what was still possible."""

from __future__ import annotations

import signal
import sys
import threading

from auras_ros import ros
from auras_ros.ros.dds import executor

# Without its slices a wait ends only by the guard condition, so the signal itself has to trigger that.
executor._SLICE_NS = 3600 * 10**9
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
ros.init(args=[])
node = ros.Node("spinner")
node.create_timer(0.01, lambda: print("ready", flush=True) or timer.cancel())
[timer] = node.timers
try:
    if "early" in sys.argv:  # a signal between init and spin
        print("ready", flush=True)
        signal.raise_signal(signal.SIGTERM)
    ros.spin(node)
    print("returned")
except KeyboardInterrupt:
    print("KeyboardInterrupt")
except ros.ExternalShutdownException:
    print("ExternalShutdownException")
print("ok" if ros.ok() else "not ok")
node.destroy_node()
ros.try_shutdown()
print(sorted(thread.name for thread in threading.enumerate() if not thread.daemon))
