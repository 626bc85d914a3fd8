"""A consumer that takes records, prints their numbers and holds them until it is killed: for `failover_story`."""

import json
import sys
import time
from pathlib import Path

from headrace.cli.demo.orders import number_in
from headrace.client.sync import ShareConsumer


def main(settings: str, group: str, topic: str, count: str) -> None:
    consumer = ShareConsumer(
        {
            **json.loads(Path(settings).read_text()),
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": int(count),
            "max.unacknowledged": int(count),
        }
    )
    consumer.subscribe([topic])
    held: list[int] = []
    while len(held) < int(count):
        held += [number_in(delivery.value) for delivery in consumer.poll(timeout=1.0)]
    print(json.dumps(held), flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
