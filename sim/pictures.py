"""A picture in another size, as evaluations of robot policies make it. Nothing here draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def resized(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """RGB [height, width, 3], uint8: itself if it has that size, else by the mean of the area behind each pixel."""
    if picture.shape[:2] == (height, width):
        return picture
    import cv2

    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), dtype=np.uint8)
