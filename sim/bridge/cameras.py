"""What a bridge publishes of a camera: its image raw and compressed, and its calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import IMAGES, compressed_message, image_message, to_time_msg
from auras_ros.ros.msg import CameraInfo, CompressedImage, Header, Image
from auras_ros.sim.world import WorldCamera

JPEG_QUALITY = 95
LATEST = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
Encode = Callable[[NDArray[np.uint8], int, str], Any]  # RGB image, stamp, frame -> CompressedImage


@dataclass(frozen=True)
class CameraPublishers:
    """Those of one camera."""

    camera: WorldCamera
    encode: Encode
    image: Any
    compressed: Any
    info: Any

    @classmethod
    def of(cls, node: Node, camera: WorldCamera, encode: Encode) -> CameraPublishers:
        base = f"camera/{camera.name}"
        return cls(
            camera,
            encode,
            node.create_publisher(Image, f"{base}/image_raw", IMAGES),
            node.create_publisher(CompressedImage, f"{base}/image_raw/compressed", IMAGES),
            node.create_publisher(CameraInfo, f"{base}/camera_info", LATEST),
        )

    def publish(self, image: NDArray[np.uint8], stamp_ns: int) -> None:
        """The calibration first: who waits for both has them with the image."""
        self.info.publish(_camera_info(self.camera, stamp_ns))
        self.image.publish(rgb8_message(self.camera, image, stamp_ns))
        if self.compressed.get_subscription_count():
            self.compressed.publish(self.encode(image, stamp_ns, _frame_id(self.camera)))


def rgb8_message(camera: WorldCamera, image: NDArray[np.uint8], stamp_ns: int) -> Any:
    """sensor_msgs/Image of a picture of this camera, of any size."""
    return image_message(image, stamp_ns=stamp_ns, frame_id=_frame_id(camera), encoding="rgb8")


def _frame_id(camera: WorldCamera) -> str:
    return f"camera_{camera.name}"


def _camera_info(camera: WorldCamera, stamp_ns: int) -> Any:
    """CameraInfo of a camera without distortion; a matrix `k` of zeros says that it is not calibrated."""
    fx, fy, cx, cy = camera.intrinsics or (0.0, 0.0, 0.0, 0.0)
    one = float(camera.intrinsics is not None)
    return CameraInfo(
        header=Header(stamp=to_time_msg(stamp_ns), frame_id=_frame_id(camera)),
        height=camera.height,
        width=camera.width,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, one],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, one, 0.0],
    )


def encoder(compression: str) -> Encode:
    """For jpeg or png; it names the formats as image_transport does."""
    import cv2

    suffix, options = {
        "jpeg": (".jpg", [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]),
        "png": (".png", [cv2.IMWRITE_PNG_COMPRESSION, 1]),
    }[compression]

    def encode(image: NDArray[np.uint8], stamp_ns: int, frame_id: str) -> Any:
        done, data = cv2.imencode(suffix, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
        if not done:
            raise RuntimeError(f"cv2 could not encode an image as {compression}")
        named = f"rgb8; {compression} compressed bgr8"
        return compressed_message(data.tobytes(), format=named, stamp_ns=stamp_ns, frame_id=frame_id)

    return encode
