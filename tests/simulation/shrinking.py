"""Delta debugging: the fewest steps of a life that still break the same promise, within a bounded time."""

import time
from collections.abc import Callable
from typing import Any


def shrink(outcome: Any, live: Callable[..., Any], within_s: float) -> list[int]:
    """Steps of the outcome's life that are enough for what it found."""
    deadline = time.monotonic() + within_s

    def still_fails(steps: list[int]) -> bool:
        return bool(live(outcome.seed, outcome.steps, outcome.path, kept=steps).what == outcome.what)

    kept = list(range(min(outcome.at_step, outcome.steps)))
    if not still_fails(kept):
        return list(range(outcome.steps))
    size = max(1, len(kept) // 2)
    while time.monotonic() < deadline:
        shorter = _without_some(kept, size, still_fails, deadline)
        if len(shorter) == len(kept) and size == 1:
            break
        kept = shorter
        size = max(1, min(size // 2, len(kept) // 2))
    return kept


def _without_some(
    kept: list[int], size: int, still_fails: Callable[[list[int]], bool], deadline: float
) -> list[int]:
    at = len(kept)
    while at > 0 and time.monotonic() < deadline:
        first = max(0, at - size)
        candidate = kept[:first] + kept[at:]
        if candidate and still_fails(candidate):
            kept = candidate
        at = first
    return kept
