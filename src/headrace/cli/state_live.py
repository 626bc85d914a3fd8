"""The windows as the serving broker has them in memory, with holders and locks: asked of `headrace serve --http`."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from headrace.cli.failures import Refused
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.wire.ids import TopicAndPartition

WAIT_S_MAX = 10.0


def live_state(
    address: str, group_id: str, token: str | None
) -> tuple[dict[TopicAndPartition, SharePartitionState], dict[TopicAndPartition, int | None]]:
    """Windows and lags. Refused where no broker of ours answers."""
    page = ask_dashboard(address, "/group", {"group": group_id}, token)
    if not page.get("is_live"):
        raise Refused(
            f"the dashboard at {address} does not run inside a broker, so it cannot show locks; omit --http."
        )
    windows = page["windows"]
    states = {(one["topic"], one["partition"]): _state(group_id, one) for one in windows}
    return states, {(one["topic"], one["partition"]): one["lag"] for one in windows}


def ask_dashboard(
    address: str, path: str, parameters: Mapping[str, object], token: str | None
) -> dict[str, Any]:
    """What its JSON API answers to a GET. Refused where no dashboard answers, or where it refuses."""
    base = address if "://" in address else f"http://{address}"
    query = urllib.parse.urlencode(parameters)
    request = urllib.request.Request(f"{base.rstrip('/')}/api/v1{path}?{query}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    return _ask(request, address)


def _ask(request: urllib.request.Request, address: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        try:
            said = json.loads(said)["error"]
        except (ValueError, KeyError, TypeError):
            said = said.strip() or str(error)
        raise Refused(f"the dashboard at {address} responds with {error.code}: {said[:500]}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Refused(
            f"no dashboard responds at {address} ({reason}); `headrace serve --http HOST:PORT` opens one."
        ) from None


def _state(group_id: str, window: dict[str, Any]) -> SharePartitionState:
    return SharePartitionState(
        group_id=group_id,
        topic=window["topic"],
        topic_id="",
        partition=window["partition"],
        start_offset=window["start_offset"],
        next_offset=window["next_offset"],
        state_epoch=-1,
        leader_epoch=-1,
        snapshot_epoch=-1,
        delivery_complete_count=None,
        runs=tuple(
            StateRun(
                run["first"],
                run["last"],
                RecordState[run["state"].upper()],
                run["delivery_count"],
                run["holder"],
                run["lock_ms_left"],
            )
            for run in window["runs"]
            if run["state"].upper() in RecordState.__members__
        ),
        log_start_offset=window["log_start_offset"],
        log_end_offset=window["log_end_offset"],
        is_live=True,
        window_max=window["window_max"],
    )
