"""How many elements the lists of a request may have: topics, partitions, groups, resources, all together.

Theory of operation. While one request is handled in a turn of the loop, all other clients wait. A request that is
handled in pieces (pieces.py), or in steps (slices.py) or pages of its handler, may have as many as the setting says.
All others are handled in one turn, and may have a tenth of that. It is counted while the request is read, so that one
with more costs no more than one with as many as are allowed. The connection is closed, as with one that is too large.
"""

from functools import cache

from headrace.broker.handlers import handler_of
from headrace.broker.request_metrics import api_name

SETTING = "headrace.request.elements.max"
IN_ONE_TURN = 10
"""The setting's number is divided by this for requests that are handled in one turn."""


def elements_max(most: int, api_key: int) -> int:
    """`most` is the setting's number."""
    return most if takes_many(api_key) else most // IN_ONE_TURN


@cache
def takes_many(api_key: int) -> bool:
    handler = handler_of(api_key)
    return hasattr(handler, "CUTS") or hasattr(handler, "TAKES_MANY")


def refusal(most: int, api_key: int) -> str:
    """Why a request with more elements is refused, and what to do."""
    name = api_name(api_key)
    share = "" if takes_many(api_key) else f"; {name} may have 1/{IN_ONE_TURN} of it"
    return (
        f"a request of {name} has more than {elements_max(most, api_key)} elements in its lists "
        f"({SETTING}={most}{share}). Send several smaller requests, or raise the setting."
    )
