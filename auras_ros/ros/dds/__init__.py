"""A layer on Cyclone DDS with rclpy's interface and the wire protocol of ROS 2 Jazzy, for machines without ROS 2.

The names are rclpy's. It has what our nodes use and what a user's nodes are likely to use, and nothing
that rclpy does not have under the same name; `auras_ros.ros` chooses between the two.
"""

from .arguments import remove_ros_args
from .clock import Clock, ClockType, Duration, JumpThreshold, Time
from .context import Context, get_default_context, init, ok, shutdown, try_shutdown
from .events import PublisherEventCallbacks, SubscriptionEventCallbacks
from .exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterAlreadyDeclaredException,
    ParameterNotDeclaredException,
    ParameterUninitializedException,
)
from .executor import ExternalShutdownException, SingleThreadedExecutor
from .future import Future
from .lifecycle import LifecycleNode
from .lifecycle_machine import LifecycleState, TransitionCallbackReturn
from .logger import LoggingSeverity, get_logger
from .messages import deserialize_message
from .node import Node
from .parameter import Parameter
from .qos import (
    DurabilityPolicy,
    HistoryPolicy,
    LivelinessPolicy,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
    qos_policy_name_from_kind,
    qos_profile_sensor_data,
    qos_profile_services_default,
    qos_profile_system_default,
)
from .signals import SignalHandlerOptions
from .spinning import create_node, spin, spin_once, spin_until_future_complete
