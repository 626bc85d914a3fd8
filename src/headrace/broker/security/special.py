"""Rules of access that only one API has, or a few of the same kind. See `rules.py` for what a rule is."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headrace.broker.call import CloseConnection
from headrace.broker.error_responses import error_items
from headrace.broker.security.rules import (
    CODES,
    Answer,
    Asker,
    Proceed,
    Rule,
    amended,
    each,
    extended,
    name_of,
    run,
    sift,
    without,
)
from headrace.wire.acls import CLUSTER_NAME, AclResourceType
from headrace.wire.acls import AclOperation as Op
from headrace.wire.apis import response_class
from headrace.wire.batches import ATTRIBUTES_AT, HEADER_SIZE, TRANSACTIONAL
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID, Message, replaced

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTIONAL_ID = AclResourceType.TRANSACTIONAL_ID
NOT_ASKED = -(2**31)
METADATA_LOG = "__cluster_metadata"
MANY_GROUPS_SINCE = 8
MANY_KEYS_SINCE = 4
SHARE_KEYS_SINCE = 6
LOG_DIRS_ERROR_SINCE = 3
BROKERS_ONLY_SINCE = 4
COORDINATOR_KINDS = {0: GROUP, 1: TRANSACTIONAL_ID}
SHARE_COORDINATOR = 2
CONFIG_KINDS = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
"""Resource types of configs: topic, broker, broker logger, client metrics, group."""
_WRITE_TOPICS = each(Op.WRITE, TOPIC, "topic_data", "name", answers="responses")


def produce(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """Transactional batches need the transactional id, all of them their topics. Nobody hears of a refusal with acks=0,
    so that closes the connection, as other errors do.
    """
    if any(_is_transactional(data.records) for topic in request.topic_data for data in topic.partition_data):
        if request.transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        asker.require(Op.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    if request.acks:
        return _WRITE_TOPICS(asker, request, proceed)

    def allows(topic: Any) -> bool:
        name = name_of(asker, topic, "name")
        return name is None or asker.allows(Op.WRITE, TOPIC, name)

    def go_on(refused: list[Any]) -> Answer:
        if refused:
            raise CloseConnection(
                f"{asker.call.principal} sent records with acks=0 to topics it may not write to"
            )
        return proceed(request)

    return sift(asker, request.topic_data, allows, go_on)


def _is_transactional(records: bytes | None) -> bool:
    flags_at = ATTRIBUTES_AT + 1
    return records is not None and len(records) >= HEADER_SIZE and bool(records[flags_at] & TRANSACTIONAL)


def visible(operation: Op, kind: AclResourceType, answers: str, name: str) -> Rule:
    """What the client may not see is not in the answer."""

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        return amended(proceed(request), lambda answer: _only(asker, answer, operation, kind, answers, name))

    return rule


def _only(asker: Asker, answer: Any, operation: Op, kind: AclResourceType, answers: str, name: str) -> Any:
    seen = [
        item
        for item in getattr(answer, answers)
        if (resource := name_of(asker, item, name)) is not None and asker.may(operation, kind, resource)
    ]
    setattr(answer, answers, seen)
    return answer


def operations(answers: str, name: str, kind: AclResourceType, field: str) -> Rule:
    """Tells the operations that the client is authorized for, where it has asked for them."""

    def tell(asker: Asker, answer: Any) -> Any:
        for item in getattr(answer, answers):
            if getattr(item, field) != NOT_ASKED:
                setattr(item, field, asker.access.authorized(asker.call, kind, getattr(item, name) or ""))
        return answer

    return lambda asker, request, proceed: amended(proceed(request), lambda answer: tell(asker, answer))


def cluster_operations(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    def tell(answer: Any) -> Any:
        if answer.cluster_authorized_operations != NOT_ASKED:
            authorized = asker.access.authorized(asker.call, CLUSTER, CLUSTER_NAME)
            may = asker.allows(Op.DESCRIBE, CLUSTER, CLUSTER_NAME)
            answer.cluster_authorized_operations = authorized if may else 0
        return answer

    return amended(proceed(request), tell)


def topics_of_groups(name: str) -> Rule:
    """Groups that name topics, or leave them out and mean all: those are refused, these are hidden.

    A request may name a group several times, and each time is answered by itself: what is refused belongs to its place
    in the request, not to the group's name.
    """

    def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
        groups: list[Any] = []
        refused: list[list[Any]] = []
        for group in request.groups:
            denied = [
                topic for topic in group.topics or () if not _is_shown(asker, topic, name, asker.allows)
            ]
            if denied:
                gone = {id(topic) for topic in denied}
                group = replaced(group, "topics", [each for each in group.topics if id(each) not in gone])
            groups.append(group)
            refused.append(denied)

        def amend(answer: Any) -> Any:
            for group, denied in zip(answer.groups, refused, strict=True):
                if not group.error_code:
                    group.topics = [
                        topic for topic in group.topics if _is_shown(asker, topic, name, asker.may)
                    ]
                    extended(group, "topics", _refused_topics(asker, request, group, denied))
            return answer

        return amended(proceed(replaced(request, "groups", groups)), amend)

    return rule


def _is_shown(
    asker: Asker, topic: Any, name: str, allows: Callable[[Op, AclResourceType, str], bool]
) -> bool:
    """An id that no topic has tells nothing."""
    resource = name_of(asker, topic, name)
    return resource is None or allows(Op.DESCRIBE, TOPIC, resource)


def _refused_topics(asker: Asker, request: Message, group: Message, topics: Sequence[Any]) -> list[Message]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    message = KafkaError(code).text
    return error_items(request.API_KEY, type(group), "topics", topics, code, message, asker.call.api_version)


_FETCHED_GROUPS = (each(Op.DESCRIBE, GROUP, "groups", "group_id"), topics_of_groups("name"))
describe_share_offsets = topics_of_groups("topic_name")


def offset_fetch(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    if asker.call.api_version >= MANY_GROUPS_SINCE:
        return run(_FETCHED_GROUPS, asker, request, proceed)
    asker.require(Op.DESCRIBE, GROUP, request.group_id)
    if request.topics is None:
        return visible(Op.DESCRIBE, TOPIC, "topics", "name")(asker, request, proceed)
    return each(Op.DESCRIBE, TOPIC, "topics", "name")(asker, request, proceed)


def find_coordinator(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    kind = COORDINATOR_KINDS.get(request.key_type)
    version = asker.call.api_version
    if request.key_type == SHARE_COORDINATOR and version >= SHARE_KEYS_SINCE:
        asker.require_cluster(Op.CLUSTER_ACTION)
    if kind is None:
        return proceed(request)
    if version >= MANY_KEYS_SINCE:
        return each(Op.DESCRIBE, kind, "coordinator_keys", answers="coordinators")(asker, request, proceed)
    asker.require(Op.DESCRIBE, kind, request.key)
    return proceed(request)


def list_groups(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    if asker.may_cluster(Op.DESCRIBE):
        return proceed(request)
    return visible(Op.DESCRIBE, GROUP, "groups", "group_id")(asker, request, proceed)


def create_topics(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """CREATE on the cluster or on the topic. Its settings are told only to those who may describe them."""
    times = Counter(topic.name for topic in request.topics)

    def allows(topic: Any) -> bool:
        is_refused_anyway = times[topic.name] > 1 or topic.name == METADATA_LOG
        return is_refused_anyway or asker.allows(Op.CREATE, TOPIC, topic.name)

    def hide(answer: Any) -> Any:
        for topic in answer.topics:
            if not topic.error_code and not asker.may(Op.DESCRIBE_CONFIGS, TOPIC, topic.name):
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = ()
        return answer

    def go_on(refused: list[Any]) -> Answer:
        result = without(
            asker, request, proceed, "topics", refused, "topics", CODES[TOPIC], "Authorization failed."
        )
        return amended(result, hide)

    return sift(asker, () if asker.may_cluster(Op.CREATE) else request.topics, allows, go_on)


def delete_topics(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """Whoever may not describe a topic does not learn from the answer whether it exists, nor what it is called."""
    items = "topics" if request.topics else "topic_names"
    asked = getattr(request, items)
    times = Counter(item if isinstance(item, str) else item.name for item in asked)

    def go_on(refused: list[Any]) -> Answer:
        result = without(
            asker, request, proceed, items, refused, "responses", CODES[TOPIC], KafkaError(CODES[TOPIC]).text
        )
        return amended(result, name) if refused else result

    def name(answer: Any) -> Any:
        for topic in answer.responses:
            if topic.name is None and topic.topic_id != ZERO_UUID:
                found = name_of(asker, topic, "name")
                if found is not None and asker.may(Op.DESCRIBE, TOPIC, found):
                    topic.name = found
        return answer

    return sift(asker, asked, lambda item: _is_deletable(asker, item, times), go_on)


def _is_deletable(asker: Asker, item: Any, times: Counter[str]) -> bool:
    is_by_name = isinstance(item, str) or item.topic_id == ZERO_UUID
    if not is_by_name and item.name is not None:
        return True  # refused by the handler, and it must see the name: it may be there twice
    name = name_of(asker, item, "name")
    if name is None:
        return True  # there is none: the handler says so
    if not is_by_name:
        return asker.allows(Op.DELETE, TOPIC, name)
    if times[name] > 1 or not name:
        return True  # refused by the handler, whether it exists or not
    if asker.core.topics.get(name) is None:
        return asker.allows(Op.DESCRIBE, TOPIC, name)
    return asker.allows(Op.DELETE, TOPIC, name)


def init_producer_id(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    if request.transactional_id is not None:
        asker.require(Op.WRITE, TRANSACTIONAL_ID, request.transactional_id)
    elif not asker.access.may_any(asker.call, Op.WRITE, TOPIC):
        asker.require_cluster(Op.IDEMPOTENT_WRITE)
    return proceed(request)


def offset_for_leader_epoch(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    if asker.may_cluster(Op.CLUSTER_ACTION):
        return proceed(request)
    return each(Op.DESCRIBE, TOPIC, "topics", "topic")(asker, request, proceed)


def add_partitions_to_txn(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """Its topics are checked by the handler: one that is refused keeps all others from being added."""
    if asker.call.api_version >= BROKERS_ONLY_SINCE:
        asker.require_cluster(Op.CLUSTER_ACTION)
    else:
        asker.require(Op.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    return proceed(request)


def configs(operation: Op, answers: str) -> Rule:
    """Each resource by its type. A type that does not exist is left to the handler, which refuses it."""

    def of_kind(kind: AclResourceType) -> Rule:
        def rule(asker: Asker, request: Any, proceed: Proceed) -> Answer:
            refused = [
                resource
                for resource in request.resources
                if CONFIG_KINDS.get(resource.resource_type) is kind
                and not asker.allows(
                    operation, kind, CLUSTER_NAME if kind is CLUSTER else resource.resource_name
                )
            ]
            text = KafkaError(CODES[kind]).text
            return without(asker, request, proceed, "resources", refused, answers, CODES[kind], text)

        return rule

    kinds = [of_kind(kind) for kind in (CLUSTER, TOPIC, GROUP)]
    return lambda asker, request, proceed: run(kinds, asker, request, proceed)


def describe_log_dirs(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """Before v3 there is no place for the error: the answer is empty."""
    if asker.call.api_version < LOG_DIRS_ERROR_SINCE and not asker.may_cluster(Op.DESCRIBE):
        return response_class(request.API_KEY)()
    asker.require_cluster(Op.DESCRIBE)
    return proceed(request)


def describe_transactions(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    def hide(answer: Any) -> Any:
        for state in answer.transaction_states:
            _only(asker, state, Op.DESCRIBE, TOPIC, "topics", "topic")
        return answer

    ids = each(Op.DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", answers="transaction_states")
    return ids(asker, request, lambda left: amended(proceed(left), hide))


list_transactions = visible(Op.DESCRIBE, TRANSACTIONAL_ID, "transaction_states", "transactional_id")


def hide_members(asker: Asker, request: Any, proceed: Proceed) -> Answer:
    """A group with a topic that the client may not describe is not described."""

    def hide(answer: Any) -> Any:
        for group in answer.groups:
            if not all(asker.may(Op.DESCRIBE, TOPIC, name) for name in _assigned(group)):
                group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                group.error_message = (
                    "The group has described topic(s) that the client is not authorized to describe."
                )
                group.group_state = group.assignor_name = ""
                group.group_epoch = group.assignment_epoch = 0
                group.members = ()
                group.authorized_operations = NOT_ASKED
        return answer

    return amended(proceed(request), hide)


def _assigned(group: Any) -> set[str]:
    assignments = [member.assignment for member in group.members]
    assignments += [
        member.target_assignment for member in group.members if hasattr(member, "target_assignment")
    ]
    return {topic.topic_name for assignment in assignments for topic in assignment.topic_partitions}
