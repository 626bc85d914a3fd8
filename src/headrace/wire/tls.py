"""What clients and brokers do alike to make a TLS context: their own key and certificates, and whom they trust."""

import os
import ssl
import tempfile
from pathlib import Path


def load_identity(context: ssl.SSLContext, key: str, chain: str, password: str) -> None:
    """Key and chain as PEM text; ssl.SSLError if they cannot be used.

    Python reads keys only from files, so they pass through one that only we can read.
    """
    file, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(file, "w") as writer:
            writer.write(f"{key}\n{chain}\n")
        context.load_cert_chain(path, password=lambda: password)
    finally:
        Path(path).unlink()
