"""File names and checkpoint files, as Kafka has them."""

import pytest

from headrace.base.properties import parse_properties
from headrace.log.layout import (
    MERGED,
    SWAP,
    Unreadable,
    encode_checkpoint,
    encode_epochs,
    encode_partition_metadata,
    encode_properties,
    file_name,
    is_by_name,
    parse_checkpoint,
    parse_directory_name,
    parse_epochs,
    parse_file_name,
    parse_offsets,
    parse_partition_metadata,
    parse_range_name,
    range_name,
)


def test_a_checkpoint_is_keyed_by_topic_id_and_has_a_checksum() -> None:
    offsets = {(bytes(range(16)), 1): 5, (b"\xff" * 16, 0): 2**40}
    data = encode_checkpoint(offsets)
    assert data.startswith(b"1\n2\nAAECAwQFBgcICQoLDA0ODw 1 5\n_____________________w 0 1099511627776\ncrc ")
    assert not is_by_name(data)
    assert parse_checkpoint(data) == offsets
    assert parse_checkpoint(encode_checkpoint({})) == {}


def test_a_checkpoint_of_which_any_bit_is_wrong_is_unreadable() -> None:
    data = encode_checkpoint({(bytes(range(16)), 1): 5})
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unreadable):
            parse_checkpoint(bytes(changed))
    for size in range(len(data)):
        with pytest.raises(Unreadable):
            parse_checkpoint(data[:size])


def test_the_checkpoints_of_format_1_are_still_read() -> None:
    data = b"0\n2\na-b.c_d 0 1099511627776\norders 1 5\n"
    assert is_by_name(data)
    assert parse_offsets(data) == {("orders", 1): 5, ("a-b.c_d", 0): 2**40}


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


@pytest.mark.parametrize("suffix", [SWAP, MERGED])
def test_a_file_of_a_compaction_names_the_range_that_is_replaced(suffix: str) -> None:
    assert parse_range_name(range_name(3, 99, suffix)) == (3, 99)
    for name in (file_name(3, ".log"), f"x{suffix}", file_name(3, suffix), range_name(3, 99, ".log")):
        assert parse_range_name(name) is None


def test_partition_metadata_holds_the_topic_id() -> None:
    topic_id = bytes(range(16))
    data = encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert parse_partition_metadata(data) == topic_id
    for torn in (b"", data[:-1], b"\xff\xfe", b"version: 0\n", data.replace(b"Dw", b"?w")):
        assert parse_partition_metadata(torn) is None


def test_properties_are_java_properties() -> None:
    data = encode_properties({"b": 2, "a": "x"})
    assert data == b"a=x\nb=2\n"
    assert parse_properties(data.decode()) == {"a": "x", "b": "2"}
