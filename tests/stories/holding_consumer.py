"""A share consumer in a process of its own: takes records, says which, and never answers for them."""

import sys
import time

from tests.share_consumers import Librdkafka, take


def main(bootstrap_servers: str, topic: str, records: str) -> None:
    client = Librdkafka(
        bootstrap_servers, topic, topic, share_acknowledgement_mode="explicit", max_poll_records=int(records)
    )
    held = take(client, 1)
    print("holding", *(one.offset for one in held), flush=True)
    time.sleep(120)


if __name__ == "__main__":
    main(*sys.argv[1:])
