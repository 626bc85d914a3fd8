"""What the group's settings mean for a worker."""

from headrace.base.settings import ConfigType
from headrace.client.admin.results import ConfigEntry
from headrace.wire.enums import ConfigSource
from headrace.worker.group_facts import GroupFacts, facts_of


def entries(**values):
    return {
        name: ConfigEntry(
            name=name,
            value=value,
            source=ConfigSource.GROUP,
            is_read_only=False,
            is_sensitive=False,
            type=ConfigType.STRING,
        )
        for name, value in values.items()
    }


LIMIT = {"share.delivery.count.limit": "8"}
TOPIC = {"errors.deadletterqueue.topic.name": "dlq.emails"}


def test_a_broker_that_does_not_show_the_limit_has_kafkas_default():
    assert facts_of({}, share_version=1) == GroupFacts(delivery_limit=5, broker_dead_letters=None)


def test_the_groups_delivery_limit_is_read():
    assert facts_of(entries(**LIMIT), share_version=1).delivery_limit == 8


def test_where_groups_have_no_limit_of_their_own_the_brokers_counts():
    assert facts_of(entries(**{"group.share.delivery.count.limit": "7"}), share_version=1).delivery_limit == 7


def test_the_broker_writes_dead_letters_where_it_can_and_was_told_to():
    assert facts_of(entries(**TOPIC), share_version=2).broker_dead_letters == "dlq.emails"


def test_a_broker_that_cannot_write_dead_letters_writes_none_whatever_was_set():
    assert facts_of(entries(**TOPIC), share_version=1).broker_dead_letters is None
    assert (
        facts_of(entries(**{"errors.deadletterqueue.topic.name": ""}), share_version=2).broker_dead_letters
        is None
    )
