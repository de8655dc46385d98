"""Who owns which block of keys and values, and which blocks hold the beginning of an earlier prompt.

A full block is named by the hash of everything up to its end: its own tokens, its images, and the hash of the block
before it. A sequence that begins alike takes such blocks instead of computing them. Blocks that nobody owns any more
keep their content until they are needed: the longest unused one first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from auras_ros.models.paged_kv import SPARE


class BlockPool:
    """Owners by count. Block 0 is nobody's. keep: whether blocks are found again by hash. late: so many of the last
    blocks go after all others, also after those that are found by hash: adapters' slots stand there."""

    def __init__(self, blocks: int, keep: bool = True, late: int = 0) -> None:
        self.size = blocks - 1
        self._first_late = blocks - late
        self._empty = list(range(self._first_late - 1, SPARE, -1))
        self._late = list(range(self.size, self._first_late - 1, -1))
        self._owners = [0] * blocks
        self._unused: OrderedDict[int, None] = OrderedDict()  # with a hash, without owner; the longest unused first
        self._by_hash: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}
        self._keep = keep

    @property
    def free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._empty) + len(self._unused) + len(self._late)

    def take(self, count: int) -> list[int] | None:
        """So many blocks, or None and nothing taken."""
        if count > self.free:
            return None
        return [self._take() for _ in range(count)]

    def take_these(self, blocks: range) -> bool:
        """Exactly these, unless somebody owns one of them."""
        if any(self._owners[block] for block in blocks):
            return False
        for block in blocks:
            if block in self._unused:
                del self._unused[block], self._by_hash[self._hashes.pop(block)]
            self._owners[block] = 1
        self._empty = [block for block in self._empty if block not in blocks]
        self._late = [block for block in self._late if block not in blocks]
        return True

    def share(self, hashes: Iterable[bytes]) -> list[int]:
        """The blocks with these hashes, up to the first that there is none of; each has one owner more."""
        found = []
        for each in hashes:
            block = self._by_hash.get(each)
            if block is None:
                break
            self._unused.pop(block, None)
            self._owners[block] += 1
            found.append(block)
        return found

    def known(self, hashes: Sequence[bytes]) -> int:
        """How many blocks `share` would give."""
        return next((index for index, each in enumerate(hashes) if each not in self._by_hash), len(hashes))

    def owned(self, hashes: Sequence[bytes]) -> int:
        """How many of them somebody owns: sharing those takes nothing from `free`."""
        return sum(self._owners[self._by_hash[each]] > 0 for each in hashes[: self.known(hashes)])

    def keep(self, block: int, name: bytes) -> None:
        """The block is full and stays as it is: others may find it by this hash, unless they find one already."""
        if self._keep and name not in self._by_hash and block not in self._hashes:
            self._by_hash[name], self._hashes[block] = block, name

    def give_back(self, blocks: Sequence[int]) -> None:
        """One owner less of each. The last block becomes the longest unused one: a beginning is worth more."""
        for block in reversed(blocks):
            self._owners[block] -= 1
            if self._owners[block] == 0:
                if block in self._hashes:
                    self._unused[block] = None
                else:
                    (self._late if block >= self._first_late else self._empty).append(block)

    def forget(self, blocks: Sequence[int]) -> list[int]:
        """As `give_back`, but nobody finds them again. Returns those that now have no owner."""
        for block in blocks:
            name = self._hashes.pop(block, None)
            if name is not None:
                del self._by_hash[name]
        self.give_back(blocks)
        return [block for block in blocks if self._owners[block] == 0]

    def _take(self) -> int:
        if self._empty:
            block = self._empty.pop()
        elif self._unused:
            block, _ = self._unused.popitem(last=False)
            del self._by_hash[self._hashes.pop(block)]
        else:
            block = self._late.pop()
        self._owners[block] = 1
        return block


def block_hash(before: bytes, ids: Sequence[int], images: Iterable[tuple[str, int]]) -> bytes:
    """before: hash of the block before. ids: of the block's tokens. images: the digest of each image with tokens in the
    block, and how many of its tokens are before it."""
    made = hashlib.sha256(before)
    made.update(array("q", ids).tobytes())
    for digest, offset in images:
        made.update(f"{digest} {offset};".encode())
    return made.digest()
