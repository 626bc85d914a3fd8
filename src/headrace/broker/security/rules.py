"""Rules of access: which permission a request needs, and what its answer is without.

A rule stands before a handler: `rule(asker, request, proceed)` refuses the whole request (KafkaError), takes out what
is not allowed and answers that itself, or takes out of the answer what the client may not see. Several rules stand one
behind the other. The table of rules is in `needs.py`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.call import CloseConnection
from headrace.broker.error_responses import error_items
from headrace.broker.later import Later
from headrace.broker.security.acls import AccessControl
from headrace.wire.acls import CLUSTER_NAME, AclOperation, AclResourceType
from headrace.wire.apis import response_class
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID, Message, replaced

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.core import BrokerCore

Answer = Message | Later[Message] | None
Proceed = Callable[[Message], Answer]
Rule = Callable[["Asker", Any, Proceed], Answer]
CHECKED_PER_STEP = 1_000
"""Items whose permission is looked up in one turn of the loop."""
CODES = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Asker:
    """The client of one request, and what it may do."""

    __slots__ = ("access", "call", "core")

    def __init__(self, core: "BrokerCore", access: AccessControl, call: "Call") -> None:
        self.core = core
        self.access = access
        self.call = call

    def allows(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        return self.access.allows(self.call, operation, kind, name)

    def may(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        """`allows` without a line in the log: for what the client has not named."""
        return self.access.may(self.call, operation, kind, name)

    def require(self, operation: AclOperation, kind: AclResourceType, name: str) -> None:
        if not self.allows(operation, kind, name):
            raise KafkaError(CODES[kind], KafkaError(CODES[kind]).text)

    def may_cluster(self, operation: AclOperation) -> bool:
        return self.may(operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    def require_cluster(self, operation: AclOperation) -> None:
        self.require(operation, AclResourceType.CLUSTER, CLUSTER_NAME)


def run(rules: Sequence[Rule], asker: Asker, request: Message, proceed: Proceed) -> Answer:
    if not rules:
        return proceed(request)
    first, *rest = rules
    return first(asker, request, lambda left: run(rest, asker, left, proceed))


def cluster(*operations: AclOperation) -> Rule:
    """The whole request needs one of these operations on the cluster."""

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        if not any(asker.may_cluster(operation) for operation in operations[:-1]):
            asker.require_cluster(operations[-1])
        return proceed(request)

    return rule


def whole(operation: AclOperation, kind: AclResourceType, field: str) -> Rule:
    """The whole request needs an operation on the resource that a field names."""

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        asker.require(operation, kind, getattr(request, field) or "")
        return proceed(request)

    return rule


def all_of(operation: AclOperation, kind: AclResourceType, field: str) -> Rule:
    """The whole request needs an operation on every resource that a list names."""

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        for name in getattr(request, field) or ():
            asker.require(operation, kind, name)
        return proceed(request)

    return rule


def each(
    operation: AclOperation,
    kind: AclResourceType,
    items: str,
    name: str = "",
    *,
    answers: str = "",
    message: str | None = None,
) -> Rule:
    """Every item of a list needs an operation on the resource that it names; it is refused without the others.

    A topic may be named by its id. One that does not exist is left to the handler: nobody learns from it.
    """

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        def allows(item: Any) -> bool:
            resource = name_of(asker, item, name)
            return resource is None or asker.allows(operation, kind, resource)

        def go_on(refused: list[Any]) -> Answer:
            return without(asker, request, proceed, items, refused, answers or items, CODES[kind], message)

        return sift(asker, getattr(request, items) or (), allows, go_on)

    return rule


def sift(
    asker: Asker, items: Sequence[Any], allows: Callable[[Any], bool], go_on: Callable[[list[Any]], Answer]
) -> Answer:
    """Goes on with the items that are refused; very many are looked at in several turns of the loop."""
    if len(items) <= CHECKED_PER_STEP:
        return go_on([item for item in items if not allows(item)])
    answer: Later[Any] = Later()
    answer.is_exclusive = True

    def checked(allowed: list[bool]) -> None:
        try:
            result = go_on([item for item, may in zip(items, allowed, strict=True) if not may])
        except Exception as error:
            answer.fail(error)
            return
        if not isinstance(result, Later):
            answer.resolve(result)
            return
        answer.on_abandon = result.abandon
        result.on_shared = answer.share
        if not result.is_exclusive:
            answer.share()
        result.then(answer.resolve, answer.fail)

    asker.core.slices.each(items, allows, per_step=CHECKED_PER_STEP).then(checked, answer.fail)
    return answer


def name_of(asker: Asker, item: Any, field: str) -> str | None:
    if isinstance(item, str):
        return item
    topic_id = getattr(item, "topic_id", ZERO_UUID)
    if topic_id == ZERO_UUID:
        return getattr(item, field) or ""
    topic = asker.core.topics.by_id(topic_id)
    return topic.name if topic is not None else None


def without(
    asker: Asker,
    request: Any,
    proceed: Proceed,
    items: str,
    refused: Sequence[Any],
    answers: str,
    code: ErrorCode,
    message: str | None = None,
) -> Answer:
    """Goes on without the items that are refused, and answers them beside the others."""
    if not refused:
        return proceed(request)
    gone = {id(item) for item in refused}
    allowed = [item for item in getattr(request, items) if id(item) not in gone]
    response = response_class(request.API_KEY)
    extra = error_items(request.API_KEY, response, answers, refused, code, message, asker.call.api_version)
    if not allowed:
        refusal: Message = extended(response(), answers, extra)
        return refusal
    left = replaced(request, items, allowed)
    result = answered(asker, left, lambda: proceed(left))
    return amended(result, lambda answer: with_refused(answer, answers, extra))


def answered(asker: Asker, request: Message, proceed: Callable[[], Answer]) -> Answer:
    """The answer, also where the handler fails: what was refused before keeps its own error beside it."""

    def failed(error: Exception) -> Message:
        return asker.core.failed(request, asker.call, error)

    try:
        result = proceed()
    except CloseConnection:
        raise
    except Exception as error:
        return failed(error)
    if not isinstance(result, Later):
        return result
    after: Later[Message] = Later()
    after.is_exclusive = result.is_exclusive
    after.on_abandon = result.abandon
    result.on_shared = after.share
    result.then(after.resolve, lambda error: after.settle(lambda: failed(error)))
    return after


def with_refused(answer: Any, answers: str, extra: Sequence[Any]) -> Any:
    """An error of the whole request stands alone."""
    return answer if getattr(answer, "error_code", 0) else extended(answer, answers, extra)


def extended(answer: Any, field: str, extra: Sequence[Any]) -> Any:
    setattr(answer, field, [*getattr(answer, field), *extra])
    return answer


def amended(result: Answer, amend: Callable[[Any], Any]) -> Answer:
    """The answer, now or later, after another function has changed it."""
    if not isinstance(result, Later):
        return amend(result) if result is not None else None
    after = result.map(lambda answer: amend(answer) if answer is not None else None)
    after.is_exclusive = result.is_exclusive
    result.on_shared = after.share
    return after
