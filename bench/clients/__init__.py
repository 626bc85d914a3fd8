"""Clients that make load, each run as a process of its own; what they found is one line of JSON on standard output."""

from pathlib import Path

RECORDS_PER_BATCH = 150
RECORD_BYTES = 100


def transport(ca: Path | None) -> dict[str, object]:
    """librdkafka's settings for a listener with TLS whose authority is `ca`; nothing without."""
    return {} if ca is None else {"security.protocol": "SSL", "ssl.ca.location": str(ca)}
