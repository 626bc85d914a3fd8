"""Tells systemd how a service of `Type=notify` is doing; does nothing where there is no systemd."""

import contextlib
import os
import socket


def notify(state: str) -> None:
    """`READY=1` once clients are served, `STOPPING=1` when the end begins."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    name = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.sendto(state.encode(), name)
