"""`format("kafka-share")` against Spark's own Kafka source: `python -m bench --only spark`."""
