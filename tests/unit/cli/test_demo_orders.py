"""The demo's orders, and the account that must hold: it is the demo's own oracle, so it has to see every fault."""

import pytest

from headrace.cli.demo.orders import Account, OrderKind, key_of, kind_of, number_in, value_of


def account(**ends: list[int]) -> Account:
    found = Account("all", 3)
    for end, numbers in ends.items():
        found.add(end, numbers)
    return found


def test_every_tenth_order_is_poison_and_every_other_fifth_is_to_be_skipped() -> None:
    kinds = [kind_of(number) for number in range(1, 101)]
    assert (kinds.count(OrderKind.POISON), kinds.count(OrderKind.SKIP), kinds.count(OrderKind.GOOD)) == (
        10,
        10,
        80,
    )


@pytest.mark.parametrize("number", [1, 5, 8, 10, 600])
def test_an_orders_number_is_found_in_it_whatever_its_kind(number: int) -> None:
    assert number_in(value_of(number)) == number
    assert (key_of(number) == b"skip") is (kind_of(number) is OrderKind.SKIP)


def test_an_account_holds_when_every_order_has_one_end() -> None:
    found = account(accepted=[3, 1], skipped=[2])
    assert found.holds
    assert found.lines()[0] == "all: 3 produced = 2 accepted + 1 skipped"


@pytest.mark.parametrize(
    ("ends", "lost", "twice", "invented"),
    [
        ({"accepted": [1, 2]}, {3}, [], set()),
        ({"accepted": [1, 2, 3], "skipped": [2]}, set(), [2], set()),
        ({"accepted": [1, 2, 3, 4]}, set(), [], {4}),
        ({"accepted": [1, 1, 3]}, {2}, [1], set()),
    ],
)
def test_an_account_sees_what_is_lost_doubled_or_invented(
    ends: dict[str, list[int]], lost: set[int], twice: list[int], invented: set[int]
) -> None:
    found = account(**ends)
    assert not found.holds
    assert (found.lost, found.twice, found.invented) == (lost, twice, invented)
