"""The messages of vision_msgs 4 (Humble and later) that nodes publish; rosbags' definitions have none of that package.

`messages` registers them. Their comments are in the package's own files.
"""

from __future__ import annotations

DEFINITIONS = {
    "vision_msgs/msg/Point2D": """
float64 x
float64 y
""",
    "vision_msgs/msg/Pose2D": """
vision_msgs/Point2D position
float64 theta
""",
    "vision_msgs/msg/BoundingBox2D": """
vision_msgs/Pose2D center
float64 size_x
float64 size_y
""",
    "vision_msgs/msg/ObjectHypothesis": """
string class_id
float64 score
""",
    "vision_msgs/msg/ObjectHypothesisWithPose": """
vision_msgs/ObjectHypothesis hypothesis
geometry_msgs/PoseWithCovariance pose
""",
    "vision_msgs/msg/Detection2D": """
std_msgs/Header header
vision_msgs/ObjectHypothesisWithPose[] results
vision_msgs/BoundingBox2D bbox
string id
""",
    "vision_msgs/msg/Detection2DArray": """
std_msgs/Header header
vision_msgs/Detection2D[] detections
""",
}
