"""What may be wrong with a connection to a broker, in words."""

import os
import re
import socket

from headrace.client.errors import (
    BrokerNotAvailableError,
    ConnectionLost,
    UnsupportedVersionError,
    error_for,
)
from headrace.client.settings import Address
from headrace.wire.apis import NAMES
from headrace.wire.errors import ErrorCode
from headrace.wire.security import SecurityProtocol

_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
"""A name with several addresses, none of which answers, gives one error with all their texts in it."""


class Faults:
    """The errors of connections to one address, over one protocol."""

    def __init__(self, address: Address, protocol: SecurityProtocol) -> None:
        self.about = f"broker at {address}"
        self._protocol = protocol

    def unavailable(self, why: str, *, hung_up: bool = False) -> BrokerNotAvailableError:
        """No connection could be made."""
        error = error_for(ErrorCode.BROKER_NOT_AVAILABLE, why, about=self.about)
        assert isinstance(error, BrokerNotAvailableError)
        error.hung_up = hung_up
        return error

    def lost(self, why: str | None, *, hung_up: bool = False) -> ConnectionLost:
        """The connection has ended."""
        error = error_for(ErrorCode.NETWORK_EXCEPTION, why, about=self.about)
        assert isinstance(error, ConnectionLost)
        error.hung_up = hung_up
        return error

    def hung_up_text(self) -> str:
        """A listener that hears another protocol than its own says nothing and hangs up."""
        others = " or ".join(each.value for each in SecurityProtocol if each is not self._protocol)
        return (
            f"it closed the connection before it answered anything. security.protocol is {self._protocol.value}; "
            f"the listener may want {others}, or be no Kafka at all"
        )

    def no_kafka(self, error: Exception, *, was_proven: bool) -> ConnectionLost:
        """`was_proven`: the other side has spoken Kafka's protocol before."""
        return self.lost(f"the response is not from a Kafka broker ({error})", hung_up=not was_proven)

    def unsupported(
        self, api_key: int, ours: tuple[int, int], theirs: tuple[int, int]
    ) -> UnsupportedVersionError:
        """The lowest and the highest version of an API on both sides."""
        has = f"has v{theirs[0]} to v{theirs[1]}" if theirs[1] >= 0 else "does not have it"
        error = error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{NAMES[api_key]} is needed in v{ours[0]} to v{ours[1]}; the broker {has}",
            about=self.about,
        )
        assert isinstance(error, UnsupportedVersionError)
        return error


def reason_of(error: OSError) -> str:
    """The system's word for it, without the address, which the error's own text repeats in each loop's own way."""
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    numbers = {error.errno} if error.errno else set(map(int, _ERROR_NUMBER.findall(str(error))))
    return " and ".join(os.strerror(number) for number in sorted(numbers)) or str(error)
