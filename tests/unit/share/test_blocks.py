"""BlockMap: a sorted map in blocks, checked against a dict over many random operations and at its edges."""

from random import Random

import pytest

from headrace.share import blocks
from headrace.share.blocks import BlockMap


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_MAX", 4)


def filled(keys: list[int]) -> BlockMap[str]:
    block_map: BlockMap[str] = BlockMap()
    for key in keys:
        block_map.insert(key, f"v{key}")
    return block_map


def test_an_empty_map_has_nothing() -> None:
    block_map = filled([])
    assert block_map.first() is block_map.last() is block_map.floor(5) is block_map.ceiling(5) is None
    assert list(block_map.from_key(0)) == list(block_map) == []
    block_map.delete_between(0, 10)
    assert block_map.size == 0


def test_floor_and_ceiling_find_neighbors_across_blocks() -> None:
    block_map = filled(list(range(0, 40, 2)))
    assert (block_map.floor(-1), block_map.floor(0), block_map.floor(9)) == (None, "v0", "v8")
    assert (block_map.ceiling(-1), block_map.ceiling(9), block_map.ceiling(39)) == ("v0", "v10", None)
    assert (block_map.first(), block_map.last()) == ("v0", "v38")
    assert list(block_map.from_key(33)) == ["v34", "v36", "v38"]


def test_appending_fills_blocks_to_the_brim() -> None:
    block_map = filled(list(range(12)))
    assert [len(keys) for keys in block_map._keys] == [4, 4, 4]


def test_inserting_into_a_full_block_halves_it() -> None:
    block_map = filled([0, 10, 20, 30, 40, 15, 17])
    assert list(block_map) == ["v0", "v10", "v15", "v17", "v20", "v30", "v40"]
    assert all(len(keys) <= 4 for keys in block_map._keys)


def test_a_new_smallest_key_is_found() -> None:
    block_map = filled([10, 20, 5])
    assert block_map.first() == block_map.floor(7) == "v5"


def test_it_does_what_a_dict_does() -> None:
    random, block_map, model = Random(7), filled([]), dict[int, str]()
    for _ in range(4_000):
        key = random.randrange(200)
        if random.random() < 0.03:
            last = key + random.randrange(60)
            block_map.delete_between(key, last)
            model = {other: value for other, value in model.items() if not key <= other <= last}
        elif key in model:
            block_map.delete(key)
            del model[key]
        else:
            block_map.insert(key, f"v{key}")
            model[key] = f"v{key}"
        below = [other for other in sorted(model) if other <= key]
        above = [other for other in sorted(model) if other >= key]
        assert block_map.floor(key) == (model[below[-1]] if below else None)
        assert block_map.ceiling(key) == (model[above[0]] if above else None)
        assert block_map.size == len(model)
        assert block_map._mins == [keys[0] for keys in block_map._keys]
    assert list(block_map) == list(block_map.from_key(-1)) == [model[key] for key in sorted(model)]
