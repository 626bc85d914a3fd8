"""Lives of one reader whose notes are in an object store, stopped and interleaved at every step of the protocol.

Each life runs in a greenlet and gives way before every request to the store, so any order of requests can be played.
A life that is killed never gets its turn again; one that is slow gets it when others have begun and worked. What is
held against them: a record that was accepted is in what the next life finds, until it was done with; and what was done
with is never found again.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from greenlet import greenlet
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.spark.ahead_notes import AheadNotes, notes_of
from headrace.spark.errors import CheckpointError
from headrace.spark.locations import ObjectPath

MEMBER = "m" * 22
LIVES = 4


@dataclass
class Store:
    """Requests take effect one after the other, each when the test gives its life a turn."""

    objects: dict[str, str] = field(default_factory=dict)
    give_way: Callable[[], object] = lambda: None
    lists_newest_first: bool = False


class StoredPath(ObjectPath):
    """The same methods on a store in memory."""

    stores: "dict[str, Store]" = {}  # noqa: RUF012

    def __truediv__(self, name: str) -> "StoredPath":
        return StoredPath(self.root, f"{self.path}/{name}")

    @property
    def _objects(self) -> dict[str, str]:
        store = self.stores[self.root]
        store.give_way()
        return store.objects

    def exists(self) -> bool:
        return self.path in self._objects

    def read_text(self, encoding: str = "utf-8") -> str:
        try:
            return self._objects[self.path]
        except KeyError:
            raise FileNotFoundError(self.path) from None

    def glob(self, pattern: str) -> Iterator["StoredPath"]:
        names = [path.removeprefix(f"{self.path}/") for path in self._objects]
        found = [self / name for name in names if fnmatchcase(name, pattern)]
        return iter(found[::-1] if self.stores[self.root].lists_newest_first else found)

    def unlink(self, missing_ok: bool = False) -> None:
        self._objects.pop(self.path, None)

    def write_whole(self, text: str) -> None:
        self._objects[self.path] = text


class Life:
    """Begins, then accepts records one after the other and is done with the oldest now and then."""

    def __init__(self, number: int, world: "World") -> None:
        self.number = number
        self.world = world
        self.is_over = False
        self._greenlet = greenlet(self._run)

    def turn(self) -> None:
        """Up to its next request."""
        if not self.is_over:
            self._greenlet.switch()

    def _run(self) -> None:
        notes: AheadNotes = notes_of(self.world.folder, MEMBER)
        self.world.newest = self.number
        try:
            found = notes.open()
            if not self.world.is_owner(notes):
                return  # succeeded since it looked: it will be told when it writes
            held = self.world.begun([] if found is None else list(found["records"]))
            for count in range(3):
                record = f"{self.number}.{count}"
                notes.write({"records": [*held, record]})
                self.world.accepted.add(record)
                held.append(record)
                if count == 1:
                    self.world.log(self.number, held.pop(0))
                    notes.write({"records": held})
        except CheckpointError:
            pass
        finally:
            notes.close()
            self.is_over = True


class World:
    def __init__(self, lists_newest_first: bool) -> None:
        self.folder = StoredPath("s3a://bucket", "checkpoint/share-outcomes")
        self.store = Store(lists_newest_first=lists_newest_first)
        StoredPath.stores[self.folder.root] = self.store
        main = greenlet.getcurrent()
        self.store.give_way = lambda: main.switch() if greenlet.getcurrent() is not main else None
        self.accepted: set[str] = set()
        self.done: set[str] = set()
        self.logged: str | None = None
        self.newest = 0

    def is_owner(self, notes: AheadNotes) -> bool:
        return self.store.objects[f"{self.folder.path}/taken-{MEMBER}.owner"] in notes.where

    def log(self, life: int, record: str) -> None:
        """A micro-batch in Spark's log. When a later Spark has read that log, this one finds its batch id taken."""
        if life != self.newest:
            raise CheckpointError("this micro-batch is in the log already")
        self.done.add(record)
        self.logged = record

    def begun(self, found: list[str]) -> list[str]:
        """What is left, without what the last micro-batch in Spark's log has."""
        left = [record for record in found if record != self.logged]
        lost = self.accepted - self.done - set(left)
        assert not lost, f"accepted and not found: {lost} ({json.dumps(self.store.objects, indent=1)})"
        again = self.done & set(left)
        assert not again, f"found though done with: {again} ({json.dumps(self.store.objects, indent=1)})"
        return left


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, LIVES - 1), st.integers(1, 16)), min_size=4, max_size=24), st.booleans()
)
@example(
    [(0, 10), (1, 7), (2, 5), (1, 2), (2, 16)], True
)  # a note that is removed between a list and its read
def test_what_a_life_accepted_is_found_by_the_next_one_whatever_their_order(
    turns: list[tuple[int, int]], lists_newest_first: bool
) -> None:
    world = World(lists_newest_first)
    lives = [Life(number, world) for number in range(LIVES)]
    for number, count in turns:
        for _ in range(count):
            lives[number].turn()
    last = Life(LIVES, world)  # those before it are killed where they are
    while not last.is_over:
        last.turn()
    assert f"{LIVES}.2" in world.accepted
