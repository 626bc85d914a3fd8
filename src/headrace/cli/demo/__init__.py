"""`headrace demo`: the whole story of a queue on Kafka, acted out and accounted for. One file for each story."""
