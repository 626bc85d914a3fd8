"""The orders that every story works on: mostly good, every tenth unreadable, every fifth to be skipped, some slow."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

SLOW_EVERY, POISON_EVERY, SKIP_EVERY = 8, 10, 5
SKIP_KEY = b"skip"
WORK_S, SLOW_WORK_S = 0.010, 0.060
POISON_REASON = "the order is not JSON"


class OrderKind(StrEnum):
    GOOD = "good"
    POISON = "poison"
    SKIP = "skip"


def kind_of(number: int) -> OrderKind:
    if number % POISON_EVERY == 0:
        return OrderKind.POISON
    return OrderKind.SKIP if number % SKIP_EVERY == 0 else OrderKind.GOOD


def key_of(number: int) -> bytes | None:
    """As in the blog that this story is from, an order to be skipped says so by its key."""
    return SKIP_KEY if kind_of(number) is OrderKind.SKIP else None


def value_of(number: int) -> bytes:
    if kind_of(number) is OrderKind.POISON:
        return f"order {number} was torn in the post".encode()
    order = {"number": number, "amount": round(number * 7.3 % 500, 2), "slow": number % SLOW_EVERY == 0}
    return json.dumps(order).encode()


def number_in(value: bytes | None) -> int:
    """The number of any order, also of one that cannot be read."""
    text = (value or b"").decode()
    return int(text.split()[1]) if text.startswith("order ") else int(json.loads(text)["number"])


def seconds_of(value: bytes | None) -> float:
    """How long working on it takes."""
    return SLOW_WORK_S if b'"slow": true' in (value or b"") else WORK_S


@dataclass(slots=True)
class Account:
    """What has become of each order. `problems` is empty when everything that was produced has one end."""

    title: str
    produced: int
    ends: dict[str, list[int]] = field(default_factory=dict)
    """The numbers of the orders by how they ended, once for each time they did."""

    def add(self, end: str, numbers: Iterable[int]) -> None:
        self.ends.setdefault(end, []).extend(numbers)

    def lines(self) -> list[str]:
        parts = " + ".join(f"{len(numbers)} {end}" for end, numbers in self.ends.items())
        total = sum(map(len, self.ends.values()))
        sign = "=" if total == self.produced else "is NOT"
        return [
            f"{self.title}: {self.produced} produced {sign} {parts}",
            f"  {len(self.lost)} lost, {len(self.twice)} twice, {len(self.invented)} invented",
        ]

    @property
    def _all(self) -> list[int]:
        return [number for numbers in self.ends.values() for number in numbers]

    @property
    def lost(self) -> set[int]:
        return set(range(1, self.produced + 1)) - set(self._all)

    @property
    def twice(self) -> list[int]:
        seen = sorted(self._all)
        return [one for one, next_one in itertools.pairwise(seen) if one == next_one]

    @property
    def invented(self) -> set[int]:
        return set(self._all) - set(range(1, self.produced + 1))

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.invented)
