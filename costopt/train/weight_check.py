"""Whether ranks that hold the same copy of a model hold the same weights, bit for bit.

A rank whose memory has flipped a bit goes on with other weights than the rest, and nothing else
detects that: gradients are averaged, and rank 0 alone saves. So each step's votes carry a digest of
some of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from costopt.train.sharded_ranks import ShardRanks
from costopt.train.sharded_state import boxes_digest, local_tensor

PORTIONS = 64
"""Steps in which every weight is compared once: a 64th of one reading of them per step."""
MIN_PORTION = 1 << 16
MIN_PIECES = 4
"""Weights, and parts of tensors, compared per step at least: less saves no time."""
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MIXER = 0x9E3779B97F4A7C15
DIGEST_BITS = 24
"""So that a digest is a whole number in float32."""


Piece = tuple[nn.Parameter, int, int]
"""A parameter, and which of its numbers."""


class WeightDigest:
    """Digests of a model's weights on this rank, the part that a step calls for."""

    def __init__(self, model: nn.Module) -> None:
        # Those that are more than a run of numbers cannot be viewed as such.
        parameters = [p for p in model.parameters() if _is_plain(local_tensor(p).detach())]
        sizes = [local_tensor(parameter).numel() for parameter in parameters]
        largest = max(MIN_PORTION, -(-sum(sizes) // PORTIONS))
        most = max(MIN_PIECES, -(-len(sizes) // PORTIONS))
        self._portions: list[list[Piece]] = [[]]
        room = largest
        for parameter, size in zip(parameters, sizes, strict=True):
            first = 0
            while first < size:
                if not room or len(self._portions[-1]) == most:
                    self._portions.append([])
                    room = largest
                last = min(size, first + room)
                self._portions[-1].append((parameter, first, last))
                room, first = room - (last - first), last

    def of(self, step: int, *, whole: bool = False) -> float:
        """Return the digest of the part of this step, or of all weights."""
        portion = self._portions[step % len(self._portions)]
        pieces = [piece for each in self._portions for piece in each] if whole else portion
        total = 0
        sums = [_bit_sum(*piece) for piece in pieces]
        together = [each.to(sums[0].device) for each in sums]
        for found in torch.stack(together).tolist() if sums else ():
            total = (total * MIXER + found) % (1 << 64)
        return float(total * MIXER % (1 << 64) >> (64 - DIGEST_BITS))


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and not tensor.is_quantized


def _bit_sum(parameter: nn.Parameter, first: int, last: int) -> Tensor:
    """Return the sum of the numbers' bits as integers, which no order of addition changes."""
    flat = local_tensor(parameter).detach().reshape(-1)[first:last]
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return flat.view(BITS[flat.element_size()]).sum(dtype=torch.int64)


class WeightComparison:
    """Compares digests between ranks, and between the processes of a copy that hold the same."""

    def __init__(self, model: nn.Module, unit: ShardRanks | None = None) -> None:
        """``unit`` are the processes of this copy. Collective over them."""
        self._digest = WeightDigest(model)
        self._held = [] if unit is None else unit.gather(boxes_digest(model))
        self._has_twins = len(set(self._held)) < len(self._held)
        self._reported: set[tuple[str, int]] = set()

    def digest(self, step: int, size: int, *, whole: bool = False) -> float:
        """Return this process' digest in a gang of ``size``; 0 where nothing is compared."""
        is_compared = size > 1 or self._has_twins
        return self._digest.of(step, whole=whole) if is_compared else 0.0

    def find(self, ranks: Sequence[float], unit: Sequence[float], step: int) -> list[str]:
        """Return in words who holds other weights than the rest, each once.

        The digests are those of all ranks, and of all processes of this copy.
        """
        found = [self._news("rank", range(len(ranks)), ranks, step)]
        for held in dict.fromkeys(self._held if unit else ()):
            numbers = [n for n, other in enumerate(self._held) if other == held]
            found.append(self._news("process", numbers, [unit[n] for n in numbers], step))
        return [news for news in found if news]

    def forget(self) -> None:
        """Begin again: ranks were numbered again."""
        self._reported.clear()

    def _news(
        self, kind: str, numbers: Sequence[int], digests: Sequence[float], step: int
    ) -> str | None:
        differing = [numbers[place] for place in differing_ranks(digests)]
        new = {(kind, number) for number in differing} - self._reported
        self._reported |= new
        return describe_difference(kind, differing, numbers, step) if new else None


def differing_ranks(digests: Sequence[float]) -> list[int]:
    """Return the ranks whose digest is not that of the most ranks, of rank 0 where that is open."""
    most = max(digests, key=digests.count, default=0.0)
    return [rank for rank, digest in enumerate(digests) if digest != most]


def describe_difference(
    kind: str, differing: Sequence[int], numbers: Sequence[int], step: int
) -> str:
    """Return in words which of these ranks or processes hold other weights than the rest."""
    rest = [number for number in numbers if number not in differing]
    verb = "hold" if len(differing) > 1 else "holds"
    who, others = _listed(kind, differing), _listed(kind, rest)
    return f"{who} {verb} other weights than {others}, found in step {step}"


def _listed(kind: str, numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"{kind} {numbers[0]}"
    *others, last = map(str, numbers)
    return f"{kind}{'es' if kind[-1] == 's' else 's'} {', '.join(others)} and {last}"
