"""What `TASKS` says of a back end: the names of its queues and its options, checked without a broker."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connections

from headrace.base.names import nearest
from headrace.worker.later import control_topic, later_topic

QUEUE_OPTIONS = ("database", "drain_timeout", "hold_max", "settings", "start_from")
"""Those of `Queue`."""
TASK_OPTIONS = ("concurrency", "dead_letter", "group_rate", "limit", "rate", "retries", "timeout", "waiting")
"""Those of `Queue.task`, for all queues or, in `queue_options`, for one."""
PER_QUEUE = "queue_options"
OUTBOX = "outbox"
"""The alias of the database in whose transactions tasks are stored."""
REQUIRED = ("bootstrap_servers", "group_id")
KNOWN = (*REQUIRED, PER_QUEUE, OUTBOX, *QUEUE_OPTIONS, *TASK_OPTIONS)
DEAD_SUFFIX = ".dead"
NAME_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class OptionProblem:
    text: str
    hint: str


def topic_of(group_id: str, queue_name: str) -> str:
    return f"{group_id}.{queue_name}"


def task_options(options: Mapping[str, Any], queue_name: str) -> dict[str, Any]:
    """What `Queue.task` is given for the tasks of a queue."""
    common = {name: options[name] for name in TASK_OPTIONS if name in options}
    own = options.get(PER_QUEUE, {}).get(queue_name, {})
    return {"dead_letter": topic_of(options["group_id"], queue_name) + DEAD_SUFFIX, **common, **own}


def problems_of(params: Mapping[str, Any], queues: Collection[str]) -> Iterator[OptionProblem]:
    """What is wrong with a back end's entry in TASKS."""
    options = params.get("OPTIONS", {})
    wrong = list(_wrong_types(params.get("QUEUES", []), options))
    yield from wrong or _wrong_values(queues, options)


def _wrong_types(queues: Any, options: Any) -> Iterator[OptionProblem]:
    if isinstance(queues, str) or not all(isinstance(name, str) for name in queues):
        yield OptionProblem(f"QUEUES is {queues!r}.", "Give a list of names, such as ['default'].")
    if not isinstance(options, Mapping):
        yield OptionProblem(f"OPTIONS is {options!r}.", "Give a dict.")
        return
    if not isinstance(options.get("group_id", ""), str):
        yield OptionProblem(f"OPTIONS['group_id'] is {options['group_id']!r}.", "Give a name.")
    per_queue = options.get(PER_QUEUE, {})
    if not isinstance(per_queue, Mapping) or not all(isinstance(own, Mapping) for own in per_queue.values()):
        hint = "Give a dict of options for each queue, such as {'emails': {'concurrency': 64}}."
        yield OptionProblem(f"OPTIONS[{PER_QUEUE!r}] is {per_queue!r}.", hint)


def _wrong_values(queues: Collection[str], options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    for name in REQUIRED:
        if not options.get(name):
            yield OptionProblem(
                f"OPTIONS has no {name!r}.",
                "Set it to the addresses of the brokers, such as 'localhost:9092'."
                if name == "bootstrap_servers"
                else "Name the share group of the workers. Its name is also the prefix of the topics.",
            )
    yield from _unknown("OPTIONS", options, KNOWN)
    per_queue = options.get(PER_QUEUE, {})
    yield from _unknown(f"OPTIONS[{PER_QUEUE!r}]", per_queue, sorted(queues))
    for name, own in per_queue.items():
        yield from _unknown(f"OPTIONS[{PER_QUEUE!r}][{name!r}]", own, TASK_OPTIONS)
    if not queues:
        yield OptionProblem("QUEUES is empty.", "Name the queues: each is a topic that workers read.")
    if OUTBOX in options:
        yield from _outbox_problems(options)
    if options.get("group_id"):
        yield from _topic_problems(options["group_id"], queues)


def _outbox_problems(options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    alias = options[OUTBOX]
    if alias not in connections.settings:
        known = ", ".join(connections.settings)
        yield OptionProblem(
            f"OPTIONS[{OUTBOX!r}] is {alias!r}, which DATABASES does not have.", f"It has {known}."
        )
    if options.get("database") is None:
        yield OptionProblem(
            f"OPTIONS has {OUTBOX!r}, but no 'database'.",
            "Workers need the same database to send what is stored, such as PostgresDatabase('dbname=shop').",
        )


def _unknown(place: str, given: Mapping[str, Any], known: Collection[str]) -> Iterator[OptionProblem]:
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            listed = f"Known are {', '.join(known)}."
            yield OptionProblem(
                f"{place} has {name!r}, which is not known.",
                f"Did you mean {meant!r}? {listed}" if meant else listed,
            )


def _topic_problems(group_id: str, queues: Collection[str]) -> Iterator[OptionProblem]:
    reserved = {later_topic(group_id), control_topic(group_id)}
    topics = {topic_of(group_id, name) for name in queues}
    for name in sorted(queues):
        topic = topic_of(group_id, name)
        if not _LEGAL_NAME.fullmatch(topic) or len(topic + DEAD_SUFFIX) > NAME_MAX:
            yield OptionProblem(
                f"The topic of queue {name!r} would be {topic!r}, which is not a valid name.",
                f"Use letters, digits, '.', '_' and '-', and at most {NAME_MAX - len(DEAD_SUFFIX)} characters.",
            )
        if topic in reserved:
            yield OptionProblem(
                f"The topic of queue {name!r} would be {topic!r}, which holds the scheduled tasks of the group.",
                "Give the queue another name.",
            )
        if topic + DEAD_SUFFIX in topics:
            yield OptionProblem(
                f"The topic of queue {name + DEAD_SUFFIX!r} would be the dead-letter topic of queue {name!r}.",
                "Give one of them another name.",
            )
