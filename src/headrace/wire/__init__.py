"""Kafka's wire protocol: frames, messages, record batches, error codes and the records of internal topics."""
