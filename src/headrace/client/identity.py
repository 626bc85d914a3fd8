"""The default `client.id` of consumers and workers: it tells what runs, where and in which process."""

import os
import platform
from dataclasses import replace

from headrace.client.settings import DEFAULT_CLIENT_ID, ShareSettings


def process_name(what: str) -> str:
    """Such as `mail.send@web-3:812`."""
    return f"{what}@{platform.node()}:{os.getpid()}"


def with_process_name(settings: ShareSettings) -> ShareSettings:
    """With a client id that tells consumers apart, unless one was chosen."""
    if settings.client_id != DEFAULT_CLIENT_ID:
        return settings
    return replace(settings, client_id=process_name(DEFAULT_CLIENT_ID))
