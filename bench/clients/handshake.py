"""One TLS 1.3 handshake: `python -m bench.clients.handshake --bootstrap-server ... --ca ...` prints the cipher suite.

What it offers is what the file in OPENSSL_CONF says: Python cannot choose suites of TLS 1.3. It prints an empty line if
the server wants none of them.
"""

import argparse
import socket
import ssl
from pathlib import Path

TIMEOUT_S = 30
NO_COMMON_SUITE = "ALERT_HANDSHAKE_FAILURE"


def suite_of(bootstrap_servers: str, ca: Path) -> str:
    host, _, port = bootstrap_servers.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as encrypted:
                chosen = encrypted.cipher()
        except (ssl.SSLEOFError, ConnectionResetError):  # our broker closes the connection without an alert
            return ""
        except ssl.SSLError as error:
            if not (error.reason or "").endswith(NO_COMMON_SUITE):
                raise
            return ""
    assert chosen is not None, "the handshake is over"
    return chosen[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    chosen = parser.parse_args()
    print(suite_of(chosen.bootstrap_server, chosen.ca), flush=True)


if __name__ == "__main__":
    main()
