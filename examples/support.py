"""What the examples share: the broker to use, and an account that must hold."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace import Broker


@contextmanager
def broker_address(description: str | None) -> Iterator[str]:
    """The address given with -b, else that of a broker which lives as long as the example."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-b", "--bootstrap-server", metavar="HOST:PORT", help="a Kafka 4.2 or newer to use")
    given = parser.parse_args().bootstrap_server
    if given is not None:
        yield given
        return
    with Broker() as broker:
        yield broker.bootstrap_servers


def account(**claims: bool) -> None:
    """Ends the program: with status 1, and the claims that do not hold, if there are any."""
    broken = [name.replace("_", " ") for name, holds in claims.items() if not holds]
    print("the account holds" if not broken else f"the account does NOT hold: {', '.join(broken)}")
    sys.exit(1 if broken else 0)
