"""One GPU, one robot, one runtime: robot policies and a vision-language agent over ROS 2.

This file holds the version and nothing else, so that importing the package costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"
