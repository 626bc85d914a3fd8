"""The promise about memory: what the broker holds for a client is bounded, whatever it sends or does not read."""

from headrace.broker import connection
from tests.simulation.model import Model
from tests.simulation.network import CHUNK_MAX
from tests.simulation.violation import Violation

IN_PROGRESS_MAX = connection.IN_FLIGHT_MAX + 1
"""Answers that may still come once the client does not read: of requests that had begun before."""


class Memory(Model):
    def after_turn(self) -> None:
        frames_max = CHUNK_MAX // 8 * connection.FRAME_COST
        for link in self.world.links:
            waiting = link.protocol._waiting_bytes
            if waiting > connection.WAITING_BYTES_MAX + CHUNK_MAX + frames_max + link.largest_request:
                raise Violation("memory without bound", f"{waiting} bytes of requests of {link.owner} wait")
            if link.transport.writes_while_full > IN_PROGRESS_MAX:
                raise Violation(
                    "memory without bound",
                    f"{link.owner} does not read, and got {link.transport.writes_while_full} more answers",
                )
