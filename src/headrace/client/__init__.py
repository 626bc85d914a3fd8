"""The client: talks to any Kafka 4.2 or newer, ours or Apache's. Share consumer and admin, with or without asyncio."""
