"""One request on its way through the stages: its tokens, its blocks, its images, its randomness."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from auras_ros.checkpoints.task_head import TaskHead
from auras_ros.engine.blocks import block_hash
from auras_ros.engine.grammar import Matcher
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import AnswerToken, FinishReason, Timings, VlmRequest
from auras_ros.lora.registry import KnownAdapter
from auras_ros.lora.slots import Resident
from auras_ros.models.cogagent import blind, looking
from auras_ros.models.fused_llama import Look
from auras_ros.models.paged_kv import PrefillSpan
from auras_ros.models.vlm import ImageEmbeddings, Vlm

NOTHING = b"auras"  # the hash before the first block, of requests without an adapter


class ActiveRequest:
    """`ids`: prompt and answer. `stored`: how many of them have their keys and values in the blocks of `table`; in
    decode all but the last one."""

    def __init__(
        self,
        request: VlmRequest,
        reply: Reply,
        number: int,
        limit: int,
        matcher: Matcher | None,
        adapter: KnownAdapter | None = None,
        eos_ids: frozenset[int] = frozenset(),
    ) -> None:
        """number: in order of arrival. limit: tokens of prompt and answer. eos_ids: the model's own stop tokens."""
        self.adapter = adapter
        self.resident: Resident | None = None  # while it is in one of the stages
        self.image_keys = [_image_key(image.digest, adapter) for image in request.prompt.images]
        self.request, self.reply, self.number, self.limit, self.matcher = request, reply, number, limit, matcher
        self.ids: list[int] = request.prompt.ids.tolist()
        self.prompt_length = len(self.ids)
        self.table: list[int] = []
        self.stored = self.cached = self.preempted = 0
        self.images: list[ImageEmbeddings | None] = [None] * len(request.prompt.images)
        self.embedded: Tensor | None = None  # of all images, one after another
        self.places = torch.empty(0)
        self.following = 0  # place of the answer's first token
        seed = None if request.seed is None else str(request.seed)  # as numbers, -1 and 1 are one seed
        self.random = random.Random(seed)
        # For the repetition penalty, bool [vocabulary]; for the other penalties, float [vocabulary].
        self.seen: Tensor | None = None
        self.counts: Tensor | None = None
        self.biases: Tensor | None = None  # float [vocabulary], of `logit_bias`
        # Tokens that end the answer: the model's own, unless they are ignored, and the request's.
        self.eos_ids = frozenset() if request.ignore_eos else eos_ids
        self.stop_ids = self.eos_ids | request.stop_ids
        # The prompt's tokens with their log probabilities, if they are asked for; nothing comes before the first one.
        self.prompt_tokens = [] if request.prompt_logprobs is None else [AnswerToken(self.ids[0])]
        self.busy = False  # in a forward
        self.ran_ns = 0  # when its last forward ended
        self.timings = Timings()
        self._at: list[int] = request.prompt.at.tolist()
        self._counts = [0, *accumulate(image.tokens for image in request.prompt.images)]
        self._hashes: list[bytes] = []
        self._root = NOTHING if adapter is None else f"{NOTHING.decode()} {adapter.digest}".encode()

    @property
    def order(self) -> tuple[int, int]:
        """Smaller ones first."""
        return self.request.priority, self.number

    @property
    def remaining(self) -> int:
        """Tokens that a prefill has yet to store."""
        return len(self.ids) - self.stored

    @property
    def answered(self) -> int:
        """Tokens of the answer so far."""
        return len(self.ids) - self.prompt_length

    @property
    def scores_prompt(self) -> bool:
        """Whether log probabilities of the prompt's tokens are still to be computed."""
        return self.request.prompt_logprobs is not None and len(self.prompt_tokens) < self.prompt_length

    @property
    def deadline_ns(self) -> int | None:
        limit = self.request.deadline_ms
        return None if limit is None else self.timings.arrived_ns + round(limit * 1e6)

    def over(self, now_ns: int) -> FinishReason | None:
        """Why it has to end before it is finished."""
        if self.reply.cancelled:
            return "cancelled"
        return "deadline" if self.deadline_ns is not None and now_ns >= self.deadline_ns else None

    def arrange(self, model: Vlm) -> None:
        """Positions for the rotary angles of the prompt and of what follows."""
        prompt = self.request.prompt
        self.places = model.places(self.prompt_length, prompt.at, [image.grid for image in prompt.images])
        self.following = int(self.places.max()) + 1

    def see(self, key: str, image: ImageEmbeddings) -> None:
        """The embeddings of each of the request's images that has this key."""
        for index, own in enumerate(self.image_keys):
            if own == key:
                self.images[index] = image
        if self.images and None not in self.images:
            tokens = [each.tokens for each in self.images if each is not None]
            self.embedded = tokens[0] if len(tokens) == 1 else torch.cat(tokens)

    def unseen(self) -> list[int]:
        """Which of the request's images have no embeddings yet."""
        return [index for index, image in enumerate(self.images) if image is None]

    def hashes(self, block: int) -> list[bytes]:
        """Of the full blocks before the last token, which is always computed."""
        for index in range(len(self._hashes), (len(self.ids) - 1) // block):
            first, end = index * block, (index + 1) * block
            before = self._hashes[-1] if self._hashes else self._root
            self._hashes.append(block_hash(before, self.ids[first:end], self._images_in(first, end)))
        return self._hashes

    def reusable(self, block: int) -> list[bytes]:
        """Hashes of the blocks that earlier prompts may have left; none where the prompt's tokens are scored, because
        keys and values do not give scores."""
        return [] if self.scores_prompt else self.hashes(block)

    def span(self, count: int) -> PrefillSpan:
        return PrefillSpan(self.stored, count, torch.tensor(self.table))

    def image_rows(self, first: int, end: int) -> tuple[list[int], Tensor | None]:
        """Which tokens of positions [first, end) are an image's, counted from `first`, and their embeddings."""
        begin, stop = bisect_left(self._at, first), bisect_left(self._at, end)
        if begin == stop or self.embedded is None:
            return [], None
        return [at - first for at in self._at[begin:stop]], self.embedded[begin:stop]

    def span_places(self, first: int, end: int) -> Tensor:
        """Positions for the rotary angles of tokens [first, end): int64 [n] or [3, n]."""
        own = self.places[..., first : min(end, self.prompt_length)]
        if end <= self.prompt_length:
            return own
        begin = self.following + max(first - self.prompt_length, 0)
        answer = torch.arange(begin, self.following + end - self.prompt_length)
        return torch.cat([own, answer.expand(*own.shape[:-1], -1)], -1)

    def look(self, positions: Tensor) -> Look:
        """What the tokens at these positions [n] see of the images by cross-attention; in the form of `looking`."""
        if not self._at:
            return blind
        starts = [self._at[count] for count in self._counts[:-1]]
        return looking([image for image in self.images if image is not None], starts, positions)

    @property
    def head(self) -> TaskHead | None:
        """That gives the answer."""
        return None if self.resident is None or self.request.head is False else self.resident.head

    @property
    def left(self) -> int:
        """Forwards of the decoder until it ends, at most."""
        return 1 if self.head is not None else self.limit - len(self.ids)

    def _images_in(self, first: int, end: int) -> list[tuple[str, int]]:
        """Digest of each image with tokens at positions [first, end), and how many of its tokens are before."""
        begin, stop = bisect_left(self._at, first), bisect_left(self._at, end)
        return [
            (image.digest, max(begin - low, 0))
            for image, (low, high) in zip(self.request.prompt.images, pairwise(self._counts), strict=True)
            if low < stop and high > begin
        ]


def _image_key(digest: str, adapter: KnownAdapter | None) -> str:
    """Of the cache: an image is another one to an adapter that changes what it becomes."""
    return f"{digest} {adapter.digest}" if adapter is not None and adapter.sees else digest
