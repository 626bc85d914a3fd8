"""Whatever a client sends that is well formed gets an answer that says something: no failure of ours, no closed
connection, nothing that cannot be written to the wire. `python -m tests.property.test_requests COUNT` runs more."""

import sys
import time

import pytest

from tests.property.requests import RequestTrial

REQUESTS = 1_000


@pytest.mark.parametrize("seed", range(8))
def test_every_well_formed_request_gets_a_good_answer(seed: int) -> None:
    trial = RequestTrial(seed)
    trial.run(REQUESTS)
    assert len(trial.codes) > 20, "most requests were refused for the same few reasons"


if __name__ == "__main__":
    wanted, done, began = int(sys.argv[1]), 0, time.monotonic()
    while done < wanted:
        RequestTrial(done).run(REQUESTS)
        done += REQUESTS
    print(f"{done} requests in {time.monotonic() - began:.0f} s")
