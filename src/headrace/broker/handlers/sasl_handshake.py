"""SaslHandshake (17), v0-v1: which mechanism a client logs in with. A login is the connection's business
(security/sasl/connection.py): what comes here came when no login was expected, and is refused (34).
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(core: "BrokerCore", request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
