"""An rclpy-shaped layer on Cyclone DDS that speaks the wire of ROS 2 Jazzy, for machines without ROS 2.

The names are rclpy's. It holds what the nodes use and nodes of one's own are likely to, and nothing
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
