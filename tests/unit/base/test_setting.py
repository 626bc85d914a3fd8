"""One setting: how its text is read, refused and shown again. The expected texts are what Kafka 4.3.1 answers."""

import pytest

from headrace.base.settings import ConfigType, Setting, SettingError
from headrace.broker.settings import BY_NAME, Scope

TOPIC = BY_NAME[Scope.TOPIC]


def setting(kind: ConfigType, **rest: object) -> Setting:
    return Setting(name="some.name", type=kind, default=None, doc="", **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "retention.ms",
            "abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            "retention.ms",
            "5_0",
            "Invalid value 5_0 for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            "retention.ms",
            "-" + "9" * 5000,
            f"Invalid value -{'9' * 5000} for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "segment.bytes",
            "3000000000",
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "5",
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "compression.gzip.level",
            "10",
            "Invalid value 10 for configuration compression.gzip.level: "
            "Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            "cleanup.policy",
            "delete,foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "compact,,delete", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "x",
            "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "leader.replication.throttled.replicas",
            "1:2,*",
            "Invalid value [1:2, *] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
            "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_bad_value_is_refused_with_kafkas_text(name: str, text: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        TOPIC[name].parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("retention.ms", "-" + "0" * 5000 + "1", -1),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "0:1,1:1", ("0:1", "1:1")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("min.cleanable.dirty.ratio", "1", 1.0),
    ],
)
def test_a_good_value_is_read_as_kafka_reads_it(name: str, text: str, value: object) -> None:
    assert TOPIC[name].parse(text) == value


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (1234567.25, "1234567.25"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001, "1.0E-4"),
        (-2.5e10, "-2.5E10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_double_is_shown_as_java_writes_it(number: float, text: str) -> None:
    assert setting(ConfigType.DOUBLE).render(number) == text


def test_every_default_is_allowed_and_survives_being_shown_and_read_again() -> None:
    for table in BY_NAME.values():
        for each in table.values():
            if each.default is not None:
                text = each.render(each.default)
                assert text is not None
                assert each.parse(text) == each.default, each.name


def test_what_is_allowed_is_said_in_words() -> None:
    assert setting(ConfigType.INT, minimum=1, maximum=9).allowed == "1 to 9"
    assert setting(ConfigType.INT, minimum=1, maximum=1).allowed == "only 1"
    assert setting(ConfigType.INT, minimum=1).allowed == "1 or more"
    assert setting(ConfigType.INT, maximum=7).allowed == "at most 7"
    assert setting(ConfigType.INT).allowed == "any number"
    assert setting(ConfigType.BOOLEAN).allowed == "true, false"
    assert setting(ConfigType.STRING, choices=("a", "b")).allowed == "a, b"
    assert setting(ConfigType.LIST, choices=("a", "b")).allowed == "any of a, b"
    assert setting(ConfigType.LIST).allowed == "a list with commas"
    assert setting(ConfigType.PASSWORD).allowed == "any text"


def test_a_password_is_sensitive() -> None:
    assert setting(ConfigType.PASSWORD).is_sensitive
    assert not setting(ConfigType.STRING).is_sensitive


def test_texts_are_trimmed_and_passwords_are_not() -> None:
    assert setting(ConfigType.STRING).parse(" a ") == "a"
    assert setting(ConfigType.PASSWORD).parse(" a ") == " a "
