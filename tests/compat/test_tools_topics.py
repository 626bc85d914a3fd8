"""kafka-topics and kafka-configs: what they print about our broker is what they print about Apache Kafka."""

from tests.compat.both import Both


def test_topics_are_made_described_grown_listed_and_deleted(both: Both, unique: str) -> None:
    configs = ("--config", "retention.ms=100000", "--config", "cleanup.policy=compact")
    created = both.run("kafka-topics", "--create", "--topic", unique, "--partitions", "2", *configs)
    assert created.same_lines() == [f"Created topic {unique}."]
    assert both.run("kafka-topics", "--alter", "--topic", unique, "--partitions", "3").same_lines() == []
    described = both.run("kafka-topics", "--describe", "--topic", unique).same_lines()
    assert described[0].startswith(
        f"Topic: {unique} TopicId: TOPIC-ID PartitionCount: 3 ReplicationFactor: 1"
    )
    assert described[1] == f"Topic: {unique} Partition: 0 Leader: 1 Replicas: 1 Isr: 1 Elr: LastKnownElr:"
    listed = both.run("kafka-topics", "--list", "--topic", unique)
    assert listed.same_lines() == [unique]
    assert both.run("kafka-topics", "--delete", "--topic", unique).same_lines() == []
    assert both.run("kafka-topics", "--list", "--topic", unique).same_lines() == []


def test_refusals_about_topics_are_kafkas(both: Both, unique: str) -> None:
    both.run("kafka-topics", "--create", "--topic", unique, "--partitions", "2")

    def refused(*arguments: str) -> set[str]:
        return both.run("kafka-topics", *arguments, check=False).same_refusal()

    again = both.run("kafka-topics", "--create", "--topic", unique, check=False)
    assert again.same_lines() == [f"Error while executing topic command : Topic '{unique}' already exists."]
    assert again.same_refusal() == {"TopicExistsException"}
    assert refused("--create", "--topic", "no spaces") == {"InvalidTopicException"}
    too_many = refused("--create", "--topic", f"{unique}-2", "--replication-factor", "3")
    assert too_many == {"InvalidReplicationFactorException"}
    assert refused("--alter", "--topic", unique, "--partitions", "1") == {"InvalidPartitionsException"}


def test_topic_configs_are_altered_and_described(both: Both, unique: str) -> None:
    both.run("kafka-topics", "--create", "--topic", unique)
    topic = ("--entity-type", "topics", "--entity-name", unique)
    wanted = "retention.ms=5000,cleanup.policy=[compact,delete]"
    altered = both.run("kafka-configs", "--alter", *topic, "--add-config", wanted)
    assert altered.same_lines() == [f"Completed updating config for topic {unique}."]
    described = both.run("kafka-configs", "--describe", *topic).same_lines()
    assert described[0] == f"Dynamic configs for topic {unique} are:"
    assert described[1].startswith(
        "cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
    )
    every = both.run("kafka-configs", "--describe", "--all", *topic).same_lines_but_for(
        "errors.deadletterqueue"
    )
    assert len(every) > 30
    both.run("kafka-configs", "--alter", *topic, "--delete-config", "retention.ms,cleanup.policy")
    assert both.run("kafka-configs", "--describe", *topic).same_lines() == described[:1]
    wrong = both.run("kafka-configs", "--alter", *topic, "--add-config", "retention.ms=-7", check=False)
    assert wrong.same_refusal() == {"InvalidConfigurationException"}


def test_broker_and_group_configs_are_altered_and_described(both: Both, unique: str) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    both.run("kafka-configs", "--alter", *broker, "--add-config", "log.retention.bytes=1000000000")
    described = both.run("kafka-configs", "--describe", *broker).same_lines()
    assert described[1].startswith(
        "log.retention.bytes=1000000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
    )
    both.run("kafka-configs", "--alter", *broker, "--delete-config", "log.retention.bytes")
    assert both.run("kafka-configs", "--describe", *broker).same_lines() == described[:1]
    read_only = both.run(
        "kafka-configs", "--alter", *broker, "--add-config", "log.dirs=elsewhere", check=False
    )
    assert read_only.same_refusal() == {"InvalidRequestException"}
    group = ("--entity-type", "groups", "--entity-name", unique)
    both.run("kafka-configs", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
    shown = both.run("kafka-configs", "--describe", *group).same_lines()
    assert shown[0] == f"Dynamic configs for group {unique} are:"
    assert shown[1].startswith("consumer.session.timeout.ms=50000")
