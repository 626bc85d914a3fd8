"""Clients that make load, each run as a process of its own; what they found is one line of JSON on standard output."""

RECORDS_PER_BATCH = 150
RECORD_BYTES = 100
