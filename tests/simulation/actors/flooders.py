"""Clients that send and do not read: what the broker holds for them stays small, and they get all answers later."""

from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.metadata_request import MetadataRequest
from tests.simulation.actor import Actor, Life


class Flooder(Actor):
    def live(self) -> Life:
        while True:
            for _ in range(self.rng.choice((3, 10, 30))):
                yield None
            link = self.link
            link.is_reading = False
            kinds: tuple[tuple[Message, int], ...] = (
                (ApiVersionsRequest(), 2),
                (MetadataRequest(topics=None), 9),
            )
            for _ in range(self.rng.choice((50, 300))):
                last = self.post(*self.rng.choice(kinds))
            while link.is_open and link.to_broker and link.transport.is_reading:
                link.deliver()
            yield None
            if link.is_open and not link.is_reading:
                link.read_again()
            link.deliver()
            yield last
