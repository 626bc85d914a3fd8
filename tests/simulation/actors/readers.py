"""Readers without a group: what a fetch returns is what the model knows, at either isolation level."""

from functools import partial
from typing import Any

from headrace.wire.batches import split
from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.simulation.actor import Actor, Life
from tests.simulation.models.logs import LogModel, batch_entries
from tests.simulation.network import Pending
from tests.simulation.scenario import TOPICS
from tests.simulation.violation import Violation


class Reader(Actor):
    def live(self) -> Life:
        while True:
            wanted = self.choose()
            if not wanted:
                yield None
                continue
            rng = self.rng
            committed = rng.random() < 0.5
            wait_ms = rng.choice((0, 0, 100, 5_000))
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=rng.choice((0, 1, 1, 300)),
                max_bytes=rng.choice((1, 500, 1 << 20)),
                isolation_level=int(committed),
                topics=[
                    FetchTopic(
                        topic=model.topic,
                        topic_id=model.topic_id,
                        partitions=[
                            FetchPartition(
                                partition=model.partition,
                                fetch_offset=offset,
                                partition_max_bytes=rng.choice((1, 1 << 20)),
                            )
                        ],
                    )
                    for model, offset in wanted
                ],
            )
            yield from self.ask(
                request,
                rng.choice((11, 13, 17)),
                timeout_ms=wait_ms + 5_000,
                answered=partial(self.check_answer, wanted, committed),
            )

    def check_answer(self, wanted: list[tuple[LogModel, int]], committed: bool, pending: Pending) -> None:
        for topic in pending.response.responses:
            for data in topic.partitions:
                self.check(topic, data, wanted, committed)

    def choose(self) -> list[tuple[LogModel, int]]:
        logs = self.logs
        wanted = []
        for name in TOPICS:
            topic_id = logs.topics.get(name)
            model = logs.logs.get((topic_id, self.rng.randrange(3))) if topic_id is not None else None
            if model is not None and self.rng.random() < 0.6:
                offset = self.rng.choice((model.start, self.rng.randint(0, model.end), model.end))
                wanted.append((model, offset))
        return wanted

    def check(self, topic: Any, data: Any, wanted: list[tuple[LogModel, int]], committed: bool) -> None:
        """By what was asked for: the topic may have been made again since."""
        found = [
            (model, offset)
            for model, offset in wanted
            if topic.topic in ("", model.topic)
            and topic.topic_id in (ZERO_UUID, model.topic_id)
            and model.partition == data.partition_index
        ]
        if not found:
            raise Violation("an answer nobody asked for", f"{topic.topic} {data.partition_index}")
        model, offset = found[0]
        if data.error_code != ErrorCode.NONE or not data.records:
            return
        if self.logs.topics.get(model.topic) != model.topic_id:
            return  # made again since: an old request by name may see the new one
        if model.is_damaged:
            self.logs.check_damaged_read(model, data.records)
            return
        for position, header in split(data.records):
            batch = data.records[position : position + header.size]
            for entry in batch_entries(batch, header, header.base_offset, 0):
                known = model.entries.get(entry.offset)
                if known is None or (known.key, known.value, known.marker) != (
                    entry.key,
                    entry.value,
                    entry.marker,
                ):
                    raise Violation("wrong record", f"{model.name}: fetched {entry}, appended was {known}")
        if committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
            self.logs.check_committed_read(model, data.records, aborted, offset)
