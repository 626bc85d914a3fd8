"""How an API answers is in its handler file: nothing else in the broker makes responses, but for a few named places."""

import ast
import re

from tests.tidy.tree import REPOSITORY, modules, parsed

BROKER = REPOSITORY / "src" / "headrace" / "broker"
HANDLERS = BROKER / "handlers"
MESSAGE = re.compile(r"headrace\.wire\.messages\.(\w+)_(request|response)")
ELSEWHERE = {
    "groups/classic_members.py": "the requests of members that wait for a rebalance, and their responses",
    "groups/classic_rebalance.py": "the machine that answers the requests that wait for a rebalance",
    "groups/commits.py": "what OffsetCommit and TxnOffsetCommit have in common",
    "groups/heartbeats.py": "the decision that a heartbeat of the consumer protocol is",
    "security/sasl/connection.py": "the login, which is answered before there is anybody to handle requests for",
    "share/requests.py": "what ShareFetch and ShareAcknowledge have in common",
    "share/responses.py": "the response of ShareFetch, as it comes together",
}
"""Modules outside the handlers that use the messages of an API, and why."""


def messages_used(tree: ast.Module) -> set[str]:
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "headrace.wire.messages":
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            used.add(node.module)
    return {name for name in used if MESSAGE.fullmatch(name)}


def test_only_handlers_use_the_messages_of_the_apis() -> None:
    others = [path for path in modules("src") if BROKER in path.parents and HANDLERS not in path.parents]
    found = {path.relative_to(BROKER).as_posix() for path in others if messages_used(parsed(path))}
    assert found == set(ELSEWHERE)


def test_a_handler_answers_its_own_api() -> None:
    """Its file reads its request and makes its response, and no other handler's."""
    for path in HANDLERS.glob("[a-z]*.py"):
        apis = {match[1] for name in messages_used(parsed(path)) if (match := MESSAGE.fullmatch(name))}
        assert apis == {path.stem}, path.name
