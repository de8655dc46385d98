"""Intervals for means, for success rates and their paired differences, quantiles of counts. Plain arithmetic, no
sampling."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

Z_95 = 1.959963984540054
T_95 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060)  # Student's t, two-sided 95 %, 1 to 8 degrees


def student(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of independent values with its 95 % interval by Student's t: (mean, low, high). Raises ValueError for
    fewer than two."""
    if len(values) < 2:
        raise ValueError(f"an interval needs two values at least, got {len(values)}")
    centre = float(np.mean(values))
    half = _t_95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return centre, centre - half, centre + half


def _t_95(degrees: int) -> float:
    """From nine degrees on by Cornish and Fisher's expansion around the normal quantile, to four digits (Abramowitz and
    Stegun, 26.7.5)."""
    if degrees <= len(T_95):
        return T_95[degrees - 1]
    z = Z_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson score interval of a proportion (Wilson 1927), default 95 %: (low, high).

    Raises ValueError unless 0 <= successes <= trials and trials > 0.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"need 0 <= successes <= trials and trials > 0, got {successes} of {trials}")
    share = successes / trials
    denominator = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / denominator
    half = z / denominator * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def success_fields(won: Collection[bool]) -> dict[str, Any]:
    """The fields of a row: the share of episodes that succeeded, their number, and the share's 95 % interval; None for
    those of no episode."""
    if not won:
        return {"success": None, "episodes": 0, "low": None, "high": None}
    low, high = wilson(sum(won), len(won))
    return {"success": sum(won) / len(won), "episodes": len(won), "low": low, "high": high}


def paired_difference(both: int, first: int, second: int, neither: int, z: float = Z_95) -> tuple[float, float, float]:
    """Difference of two paired proportions, first minus second, with its interval: (difference, low, high).

    both, first, second, neither: number of pairs in which both succeed, only the first, only the second, none.
    Newcombe's hybrid score interval for paired data (Statistics in Medicine 17, 1998, 2635-2650, method 10): the two
    Wilson intervals are combined with their correlation, which has a continuity correction. Unlike the normal
    approximation it has a width even if the modes agree on every seed. Raises ValueError for a negative count or none.
    """
    counts = (both, first, second, neither)
    trials = sum(counts)
    if min(counts) < 0 or trials == 0:
        raise ValueError(f"need four counts of at least 0 and a pair at least, got {counts}")
    p, q = (both + first) / trials, (both + second) / trials
    (p_low, p_high), (q_low, q_high) = wilson(both + first, trials, z), wilson(both + second, trials, z)
    phi = _correlation(both, first, second, neither)
    below = _joined(p - p_low, q_high - q, phi)
    above = _joined(p_high - p, q - q_low, phi)
    difference = (first - second) / trials
    return difference, max(-1.0, difference - below), min(1.0, difference + above)


def paired_by_seed(first: Mapping[int, bool], second: Mapping[int, bool]) -> tuple[float, float, float]:
    """The same from successes by seed, on the seeds of `first`. Raises KeyError for a seed that `second` lacks."""
    table = {(mine, its): 0 for mine in (True, False) for its in (True, False)}
    for seed, won in first.items():
        table[won, second[seed]] += 1
    return paired_difference(table[True, True], table[True, False], table[False, True], table[False, False])


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """Newcombe's phi of the fourfold table, reduced towards 0 if it is positive; 0 if a margin is empty."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    if margins == 0:
        return 0.0
    trials = both + first + second + neither
    product = both * neither - first * second
    if product > 0:
        product = max(0.0, product - trials / 2)  # type: ignore[assignment]
    return product / math.sqrt(margins)


def _joined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def quantile(counts: Sequence[int], share: float) -> int | None:
    """The least value v such that at least `share` of all values are v or less; counts[v] is the number of values v.

    None if there are no values. Raises ValueError unless 0 < share <= 1.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be in (0, 1], got {share}")
    needed, seen = share * sum(counts), 0
    for value, count in enumerate(counts):
        seen += count
        if count and seen >= needed:
            return value
    return None


def spread(values: Sequence[float], low: float = 25, high: float = 75) -> tuple[float, float, float]:
    """A lower percentile, the median and an upper percentile; the quartiles by default."""
    found = np.percentile(values, (low, 50, high))
    return float(found[0]), float(found[1]), float(found[2])


def mean(counts: Sequence[int]) -> float | None:
    """The mean of values v that occurred counts[v] times; None if there are none."""
    total = sum(counts)
    return sum(value * count for value, count in enumerate(counts)) / total if total else None
