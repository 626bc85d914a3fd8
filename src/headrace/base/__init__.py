"""What every other package may use and no Kafka is needed to explain: ranges, back-off, settings, properties files.

Nothing here does I/O, reads a clock or starts a thread (`loops` alone knows asyncio, to make an event loop).
"""
