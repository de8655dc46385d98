"""Embeddings of earlier images, by the image's digest: the same picture is not encoded twice."""

from __future__ import annotations

from collections import OrderedDict

from auras_ros.models.vlm import ImageEmbeddings


class ImageCache:
    """Bounded by memory; the longest unused image goes first. One that is larger than the bound is not kept."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept: OrderedDict[str, ImageEmbeddings] = OrderedDict()
        self.bytes = 0

    def get(self, digest: str) -> ImageEmbeddings | None:
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest)
        return found

    def put(self, digest: str, image: ImageEmbeddings) -> None:
        size = size_of(image)
        if digest in self._kept or size > self._limit:
            return
        self._kept[digest] = image
        self.bytes += size
        while self.bytes > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= size_of(oldest)


def size_of(image: ImageEmbeddings) -> int:
    """Bytes."""
    tensors = [image.tokens, *(tensor for pair in image.keys for tensor in pair)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
