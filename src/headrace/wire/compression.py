"""The four codecs of record batches, by `cramjam` and zlib, with a bound on what they may unpack to.

A few bytes of a hostile batch can stand for gigabytes, so nothing is unpacked past `UNPACKED_MAX`, and whoever must not
take long names a lower limit.
"""

import struct
import zlib
from typing import Any

import cramjam

from headrace.wire.batches import Buffer, Compression
from headrace.wire.errors import ErrorCode, KafkaError

UNPACKED_MAX = 256 * 1024 * 1024

# Java's snappy streams start with this header and cut the data into blocks, each after its length. Version 1,
# readable since version 1.
_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LENGTH = struct.Struct(">i")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_ANY_WINDOW = 32 + zlib.MAX_WBITS


class TooLarge(KafkaError):
    """The bytes stand for more than whoever unpacks them allows."""


def compress(codec: int, data: Buffer) -> bytes:
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=_GZIP_WINDOW)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            # Kafka's Java reader knows independent blocks only (KIP-57).
            frame = cramjam.lz4.Compressor(level=4, content_checksum=False, block_linked=False)
            frame.compress(data)
            return bytes(frame.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, *, limit: int | None = None) -> bytes:
    """KafkaError(CORRUPT_MESSAGE) for bytes not of this codec, TooLarge for more than `limit` unpacked.

    Without one, `UNPACKED_MAX` is the limit.
    """
    limit = UNPACKED_MAX if limit is None else limit
    try:
        match codec:
            case Compression.NONE:
                return bytes(data)
            case Compression.GZIP:
                return _decompress_gzip(data, limit)
            case Compression.SNAPPY:
                return _decompress_snappy(bytes(data), limit)
            case Compression.LZ4:
                return _decompress_growing(cramjam.lz4, data, limit)
            case Compression.ZSTD:
                return _decompress_growing(cramjam.zstd, data, limit)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise _corrupt(f"{Compression(codec).name.lower()} data cannot be unpacked: {error}") from None
    raise _unknown(codec)


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_ANY_WINDOW)
    unpacked = unpacker.decompress(data, limit + 1)
    if len(unpacked) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise _corrupt("gzip data ends too early.")
    return unpacked


def _compress_snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL)
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
            out += _LENGTH.pack(len(block))
            out += block
    return bytes(out)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL[:8]):
        return _decompress_snappy_block(data, limit)  # librdkafka sends one bare block
    out = bytearray()
    position = len(_XERIAL)
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise _corrupt("snappy data ends within a block.")
        out += _decompress_snappy_block(data[position : position + length], limit, len(out))
        position += length
    return bytes(out)


def _decompress_snappy_block(block: bytes, limit: int, before: int = 0) -> bytes:
    if block and before + cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_growing(codec: Any, data: Buffer, limit: int) -> bytes:
    """Into a buffer of our own, twice as large at each try, because these frames need not say their size."""
    size = max(4096, 6 * len(data))
    while True:
        out = bytearray(min(size, limit))
        try:
            length = codec.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if len(out) == limit:
                raise _too_large(limit) from None
            size *= 4
        else:
            del out[length:]
            return bytes(out)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _too_large(limit: int) -> KafkaError:
    return TooLarge(ErrorCode.CORRUPT_MESSAGE, f"A record batch unpacks to more than {limit} bytes.")


def _unknown(codec: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {codec}.")
