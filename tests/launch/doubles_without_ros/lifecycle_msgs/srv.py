from __future__ import annotations

from auras_ros.ros.srv import ChangeState, GetState

__all__ = ["ChangeState", "GetState"]
