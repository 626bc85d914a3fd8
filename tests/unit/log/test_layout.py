"""File names and checkpoint files, as Kafka has them."""

import pytest

from headrace.log.layout import (
    Unreadable,
    encode_epochs,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
    file_name,
    parse_directory_name,
    parse_epochs,
    parse_file_name,
    parse_offsets,
    parse_partition_metadata,
    parse_properties,
    parse_swap_name,
    swap_name,
)


def test_a_checkpoint_of_offsets_is_what_kafka_writes() -> None:
    offsets = {("orders", 1): 5, ("a-b.c_d", 0): 2**40}
    data = encode_offsets(offsets)
    assert data == b"0\n2\na-b.c_d 0 1099511627776\norders 1 5\n"
    assert parse_offsets(data) == offsets
    assert parse_offsets(encode_offsets({})) == {}


def test_a_checkpoint_of_epochs_is_what_kafka_writes() -> None:
    assert encode_epochs([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\norders 1 5\n",
        b"0\n1\norders 1 5",
        b"0\n1\norders 5\n",
        b"0\nx\n",
        b"\xff\n0\n",
    ],
)
def test_a_torn_checkpoint_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse_offsets(data)


def test_directories_are_named_by_topic_and_partition() -> None:
    assert parse_directory_name("my-topic-12") == ("my-topic", 12)
    for name in ("orders", "orders-", "orders-0-stray", "meta.properties", "orders-0.abc-delete"):
        assert parse_directory_name(name) is None


def test_files_are_named_by_offset() -> None:
    assert file_name(42, ".log") == "00000000000000000042.log"
    assert parse_file_name("00000000000000000042.log") == (42, ".log")
    assert parse_file_name("00000000000000000042.log.cleaned") == (42, ".log.cleaned")
    for name in ("42.log", "partition.metadata", "00000000000000000042", "leader-epoch-checkpoint"):
        assert parse_file_name(name) is None


def test_a_swap_file_names_the_range_that_it_replaces() -> None:
    assert parse_swap_name(swap_name(3, 99)) == (3, 99)
    for name in (file_name(3, ".log"), "x.swap", file_name(3, ".swap")):
        assert parse_swap_name(name) is None


def test_partition_metadata_holds_the_topic_id() -> None:
    topic_id = bytes(range(16))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(data) == topic_id
    for torn in (b"", data[:-1], b"\xff\xfe", b"version: 0\n", data.replace(b"Dw", b"?w")):
        assert parse_partition_metadata(torn) is None


def test_properties_are_java_properties() -> None:
    assert parse_properties(b"#comment\nversion=1\n a = b=c \n\nrubbish\n") == {"version": "1", "a": "b=c"}
    assert encode_properties({"b": 2, "a": "x"}) == b"a=x\nb=2\n"
