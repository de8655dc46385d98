"""What each stage runs for a dispatch. Prefill and decode read the same weights and write to the same blocks.

Decode is a captured stage for each size of batch and table: its inputs are written to the same addresses at every step.
The other two have other shapes each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

from auras_ros.checkpoints.task_head import TaskHead
from auras_ros.device.lane import Device, Lane, Stage
from auras_ros.device.uncaptured import cannot_capture
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.choose import NoTokenError, choose
from auras_ros.engine.request import AnswerToken
from auras_ros.engine.scheduler import Dispatch
from auras_ros.lora.heads import HeadResult, head_result
from auras_ros.lora.runtime import LoraRuntime
from auras_ros.lora.vision import VisionAdapter
from auras_ros.models.fused_llama import Adapt, FusedLlama, Look, ReadRows
from auras_ros.models.paged_attention import DecodeRow, PagedAttention
from auras_ros.models.paged_kv import SPARE, PrefillSpan
from auras_ros.models.sampler import likeliest, log_probabilities
from auras_ros.models.vlm import ImageEmbeddings, Vlm

SINGLE = 8  # batches up to here have a stage each; larger ones are filled up to a multiple
# A prefill is filled up to a multiple of so many rows, as oneDNN makes kernels anew for every number of them; of fewer
# where a weight has LARGE numbers, as a row costs more there.
LARGE, FILLED_LARGE, FILLED = 1 << 22, 4, 16
SCORED_ROWS = 64  # of a prompt's tokens: their scores are a row of the vocabulary each
Next = AnswerToken | HeadResult | NoTokenError
"""What a request's next token is, or its task head's result, or why there is neither."""
Outcome = ImageEmbeddings | list[Next]


class StageWorker(Protocol):
    """Runs one stage."""

    def __call__(self, dispatch: Dispatch) -> Outcome: ...


class VisionWorker:
    """One image to its embeddings."""

    def __init__(self, model: Vlm, like: FusedLlama, adapter: VisionAdapter | None = None) -> None:
        """like: whose type and device the pixels get. adapter: of the model."""
        self._model, self._like, self._adapter = model, like, adapter

    @torch.no_grad()
    def __call__(self, dispatch: Dispatch) -> ImageEmbeddings:
        image = dispatch.requests[0].request.prompt.images[dispatch.image]
        if self._adapter is not None:
            self._adapter.enter(dispatch.requests[0].resident)
        (seen,) = self._model.see(image.pixels.to(self._like.device, self._like.dtype), [image.grid])
        if not bool(seen.tokens.isfinite().all()):  # they would be kept for others
            raise FloatingPointError("the image's embeddings are not finite")
        return seen


class PrefillWorker:
    """Tokens of several requests to keys and values, and of each what follows its last one: a token, or the result of
    its task head."""

    def __init__(self, decoder: FusedLlama, attention: PagedAttention, lora: LoraRuntime | None = None) -> None:
        self._decoder, self._attention, self._lora = decoder, attention, lora
        config = decoder.config
        self._filled = FILLED_LARGE if config.width * config.hidden >= LARGE else FILLED

    @torch.no_grad()
    def __call__(self, dispatch: Dispatch) -> list[Next]:
        pairs = list(zip(dispatch.requests, dispatch.counts, strict=True))
        spans = [request.span(count) for request, count in pairs]
        fill = -sum(dispatch.counts) % self._filled
        ids = [token for request, count in pairs for token in request.ids[request.stored : request.stored + count]]
        device = self._decoder.device
        x = self._decoder.embed(torch.tensor(ids + [0] * fill, device=device))
        places, starts, begin = [], [], 0
        for (request, count), span in zip(pairs, spans, strict=True):
            at, embedded = request.image_rows(span.first, span.end)
            if embedded is not None:
                x[torch.tensor(at, device=device) + begin] = embedded
            places.append(request.span_places(span.first, span.end))
            starts.append(begin)
            begin += count
        if fill:
            spans.append(PrefillSpan(0, fill, torch.full((fill,), SPARE)))
            places.append(places[0].new_zeros(*places[0].shape[:-1], fill))
        look = None
        if self._decoder.crosses:
            look = _looks(dispatch.requests, [torch.arange(span.first, span.end) for span in spans])
        adapt = adapt_ends = None
        if self._lora is not None:
            self._lora.enter(dispatch.merged)
            residents = [request.resident for request in dispatch.requests]
            adapt = self._lora.adapt(residents, dispatch.counts, len(x))
        # Of each request its last row, or all its rows where the prompt's tokens are scored.
        read = [count if request.scores_prompt else 1 for request, count in pairs]
        if self._lora is not None:
            adapt_ends = self._lora.adapt([request.resident for request, _ in pairs], read)
        rows = [
            row
            for start, (_, count), wanted in zip(starts, pairs, read, strict=True)
            for row in range(start + count - wanted, start + count)
        ]
        ends = torch.tensor(rows).to(device)
        where, attend = torch.cat(places, -1).to(device), self._attention.prefill(spans)
        if look is not None:
            hidden = self._decoder(x, where, attend, look, adapt)[ends]
        else:
            hidden = self._decoder(x, where, attend, None, adapt, ReadRows(ends, adapt_ends))
        requests = [request for request, _ in pairs]
        unscored = self._score_prompts(requests, read, hidden)
        last_rows = torch.tensor(list(accumulate(read))).to(device) - 1
        tokens = self._next(requests, dispatch.counts, hidden[last_rows])
        return [unscored.get(place, token) for place, token in enumerate(tokens)]

    def _score_prompts(
        self, requests: Sequence[ActiveRequest], read: Sequence[int], hidden: Tensor
    ) -> dict[int, NoTokenError]:
        """Log probabilities of the prompts' tokens, for those who ask for them. hidden: of `read` rows of each request.
        Returns the requests, by their place, whose scores are not finite."""
        unscored: dict[int, NoTokenError] = {}
        for place, (request, own) in enumerate(zip(requests, hidden.split(list(read)), strict=True)):
            if not request.scores_prompt:
                continue
            known = len(request.prompt_tokens) - 1 - request.stored  # rows of a prefill before a preemption
            scored = own[max(known, 0) : request.prompt_length - 1 - request.stored]
            if not all(self._score(request, rows) for rows in scored.split(SCORED_ROWS) if len(rows)):
                unscored[place] = NoTokenError("the model's scores are not finite")
        return unscored

    def _score(self, request: ActiveRequest, hidden: Tensor) -> bool:
        """The next tokens of the prompt, after these rows [n, width]. Returns whether their scores are finite."""
        known, wanted = len(request.prompt_tokens), request.request.prompt_logprobs
        assert wanted is not None
        adapt = None if self._lora is None else self._lora.adapt([request.resident], [len(hidden)])
        scores = self._decoder.logits(hidden, adapt)
        ids = torch.tensor(request.ids[known : known + len(hidden)], device=scores.device)
        own, largest, names = log_probabilities(scores, ids, wanted)
        if not bool(own.isfinite().all()):
            return False
        for token, logprob, values, tokens in zip(
            ids.tolist(), own.tolist(), largest.tolist(), names.tolist(), strict=True
        ):
            request.prompt_tokens.append(AnswerToken(token, logprob, tuple(zip(tokens, values, strict=True))))
        return True

    def _next(self, requests: Sequence[ActiveRequest], counts: Sequence[int], hidden: Tensor) -> list[Next]:
        """hidden: of the last token of each, [n, width]. A request that is not through has nothing yet."""
        found: dict[int, Next] = {}
        through = [count == request.remaining for request, count in zip(requests, counts, strict=True)]
        for row, request in enumerate(requests):
            if through[row] and request.head is not None:
                found[row] = _result(request.head, hidden[row])
        rows = [row for row in range(len(requests)) if row not in found]
        if rows:
            own = [requests[row] for row in rows]
            adapt = None if self._lora is None else self._lora.adapt([each.resident for each in own], [1] * len(own))
            scores = self._decoder.logits(hidden[rows], adapt)
            _, finite = likeliest(scores)
            last = [place for place, row in enumerate(rows) if through[row]]
            tokens = iter(choose(scores[last], [own[place] for place in last]))
            for place, row in enumerate(rows):
                unfinished = AnswerToken(-1) if finite[place] else NoTokenError("the model's scores are not finite")
                found[row] = next(tokens) if through[row] else unfinished
        return [found[row] for row in range(len(requests))]


class DecodeWorker:
    """One token of each request."""

    def __init__(
        self,
        decoder: FusedLlama,
        attention: PagedAttention,
        device: Device,
        lanes: Mapping[int | None, Lane],
        running: int,
        width: int,
        lora: LoraRuntime | None = None,
    ) -> None:
        """lanes: by split (`Dispatch`). running: requests in a batch, at most. width: blocks of a table, at most."""
        rows = bucket(running)
        self._decoder, self._attention, self._device = decoder, attention, device
        self._lanes = lanes
        self._stages: dict[Hashable, Stage] = {}
        self._inputs = torch.zeros(3, rows, dtype=torch.int64, device=decoder.device)  # ids, positions, places
        self._tables = torch.full((rows, wide(width)), SPARE, device=decoder.device)
        self._scores = torch.zeros(rows, decoder.config.vocabulary, dtype=decoder.dtype, device=decoder.device)
        self._written: list[tuple[int, int, int]] = [(-1, 0, 0)] * rows
        self._rows: dict[int, int] = {}  # of each request's number in the batch before
        self._look: Look | None = None
        self._lora = lora
        self._adapt: Adapt | None = None

    @torch.no_grad()
    def __call__(self, dispatch: Dispatch) -> list[Next]:
        requests = self._seated(dispatch.requests)
        width = wide(max(len(request.table) for request in requests))
        self._fill(requests)
        rows = [DecodeRow((each.number, each.preempted), each.table, each.stored) for each in requests]
        self._attention.follow(rows, bucket(len(requests)), width)
        if self._decoder.crosses:
            positions = [torch.tensor([request.stored]) for request in requests]
            fill = [torch.tensor([0])] * (bucket(len(requests)) - len(requests))
            self._look = _looks(requests, [*positions, *fill])
        if self._lora is not None:
            self._lora.enter(dispatch.merged)
            residents = [request.resident for request in requests]
            self._adapt = self._lora.adapt(residents, [1] * len(requests), bucket(len(requests)), keep=True)
        self.run(bucket(len(requests)), width, dispatch.split)
        tokens = choose(self._scores[: len(requests)], requests)
        return [tokens[self._rows[request.number]] for request in dispatch.requests]

    def prepare(self, rows: int, split: int | None = None) -> None:
        """Captures the shortest stage of this size, so that no request waits for the first one."""
        self._attention.follow([], rows, 1)
        self.run(rows, 1, split)

    def run(self, rows: int, width: int, split: int | None = None) -> None:
        """The captured stage of this size and part of the device, with the inputs as they are."""
        replaced = None if self._lora is None else self._lora.weights.replaced
        lane, key = self._lanes[split], (split, rows, width, self._adapt is not None, replaced)
        stage = self._stages.get(key)
        if stage is None:
            stage = self._device.capture(f"decode {rows} x {width}", lambda: self._body(rows, width), lane)
            self._stages[key] = stage
        lane.launch(stage).wait()

    def _body(self, rows: int, width: int) -> None:
        decoder, (ids, positions, places) = self._decoder, self._inputs[:, :rows]
        if decoder.crosses:
            cannot_capture("attention to images has other shapes for each request")
        attend = self._attention.decode(self._tables[:rows, :width], positions)
        hidden = decoder(decoder.embed(ids), places, attend, self._look, self._adapt)
        self._scores[:rows] = decoder.logits(hidden, self._adapt)

    def _seated(self, requests: Sequence[ActiveRequest]) -> list[ActiveRequest]:
        """Row by row: each request stays in its row while the batch has so many."""
        seated: dict[int, ActiveRequest] = {}
        others = list[ActiveRequest]()
        for each in requests:
            row = self._rows.get(each.number, len(requests))
            if row < len(requests):
                seated[row] = each
            else:
                others.append(each)
        free = (row for row in range(len(requests)) if row not in seated)
        seated.update(zip(free, others, strict=False))
        self._rows = {each.number: row for row, each in seated.items()}
        return [seated[row] for row in range(len(requests))]

    def _fill(self, requests: Sequence[ActiveRequest]) -> None:
        """The inputs of these requests; the rows beyond them are the spare block's."""
        rows = bucket(len(requests))
        columns = [
            (each.ids[-1], each.stored, each.following + each.stored - each.prompt_length) for each in requests
        ] + [(0, 0, 0)] * (rows - len(requests))
        self._inputs[:, :rows] = torch.tensor(columns).T
        for row, each in enumerate(requests):
            key = (each.number, each.preempted, len(each.table))
            if self._written[row] != key:
                self._tables[row] = SPARE
                self._tables[row, : len(each.table)] = torch.tensor(each.table)
                self._written[row] = key
        for row in range(len(requests), rows):
            if self._written[row][0] != -1:
                self._tables[row], self._written[row] = SPARE, (-1, 0, 0)


def _result(head: TaskHead, hidden: Tensor) -> Next:
    try:
        return head_result(head, hidden)
    except FloatingPointError as error:
        return NoTokenError(str(error))


def bucket(rows: int) -> int:
    """The size of the stage for so many requests."""
    return rows if rows <= SINGLE else -(-rows // SINGLE) * SINGLE


def wide(blocks: int) -> int:
    """The table of the stage for so many blocks: 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and so on."""
    blocks = max(blocks, 1)
    step = max(1, 1 << (blocks - 1).bit_length() >> 3)
    return -(-blocks // step) * step


def _looks(requests: Sequence[ActiveRequest], positions: Sequence[Tensor]) -> Look:
    """What tokens of several requests, one after another, see of their own images; rows beyond see nothing."""
    own = [request.look(at) for request, at in zip(requests, positions, strict=False)]
    counts = [len(at) for at in positions]

    def look(layer: int, query: Tensor) -> Tensor:
        seen = []
        for index, part in enumerate(query.split(counts)):
            rows = part.transpose(0, 1)[None]  # [1, heads, n, d]
            seen.append(own[index](layer, rows)[0].transpose(0, 1) if index < len(own) else torch.zeros_like(part))
        return torch.cat(seen)

    return look
