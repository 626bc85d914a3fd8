"""Addresses as users write them: HOST:PORT, with or without the name of a listener."""


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, with or without a listener name before it; ValueError says what is wrong."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address HOST:PORT, for example localhost:9092")
    return host.strip("[]"), int(port)
