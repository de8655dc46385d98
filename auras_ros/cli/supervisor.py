from auras_ros.nodes.supervisor import *  # temporary: moved to auras_ros.nodes.supervisor; import it from there
from auras_ros.nodes.supervisor import Supervisor, SupervisorError
