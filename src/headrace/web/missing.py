"""What of the cluster the dashboard cannot read: said once for each reason, so that no metric is missing in silence.

    with missing.of(DISKS):
        disks = await admin.disk_usage()

A part that fails ends nothing but itself. What passes by itself (an election, a cluster that is gone, which has its own
line in the log) is no warning.
"""

import contextlib
import logging
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.wire.error_groups import RETRIABLE
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.web")

DENIED = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is shown, and the permission that reading it takes."""

    name: str
    metrics: str
    permission: str


DISKS = Part(
    "the disks of the brokers and the sizes of the topics",
    "headrace_disk_free_bytes, headrace_disk_total_bytes, headrace_topic_bytes",
    "describe --cluster",
)
AGES = Part(
    "the age of the oldest record of each group",
    "headrace_group_oldest_seconds",
    "read --topic TOPIC",
)
LETTER_TOPICS = Part(
    "which topics have dead letters",
    "headrace_dead_letters_waiting",
    "describe_configs --topic '*' --group '*'",
)
LETTERS = Part(
    "the dead letters that wait",
    "headrace_dead_letters_waiting",
    "read --topic TOPIC",
)


class Missing:
    def __init__(self) -> None:
        self._said: dict[tuple[Part, str], str] = {}
        """By part and topic: why."""

    @contextlib.contextmanager
    def of(self, part: Part) -> Iterator[None]:
        """Whatever the cluster refuses ends the block, and nothing else."""
        try:
            yield
        except KafkaError as error:
            self._say(part, "", error)
        except OSError as error:  # the cluster is gone, which the sampler says
            logger.debug("%s cannot be read now: %s", part.name, error)
        else:
            self._said.pop((part, ""), None)

    def topics(self, part: Part, denied: Mapping[str, KafkaError]) -> None:
        """What was found out, but for these topics."""
        for known in [key for key in self._said if key[0] is part and key[1] and key[1] not in denied]:
            del self._said[known]
        for topic, error in denied.items():
            self._say(part, topic, error)

    def _say(self, part: Part, topic: str, error: KafkaError) -> None:
        if error.code in RETRIABLE:
            logger.debug("%s cannot be read now: %s", part.name, error)
            return
        if self._said.get((part, topic)) == str(error):
            return
        self._said[part, topic] = str(error)
        why = str(error)
        if error.code in DENIED:
            wanted = part.permission.replace("TOPIC", shlex.quote(topic)) if topic else part.permission
            why = f"{error.code.name}. Allow it with: headrace acl add --allow User:NAME --operation {wanted}"
        logger.warning("cannot read %s (metrics: %s): %s", part.name, part.metrics, why)
