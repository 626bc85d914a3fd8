"""The JSON API: one table says of each operation its place, what it wants, what it answers with and who does it.

Requests are checked against the types in the table, and the OpenAPI description is printed from them: there is no
second list to keep in step.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.client.dead_letters import RedriveResult
from headrace.web import actions, browse, letters, model, processes, queries, scheduled, time_machine
from headrace.web.charts import group_charts, overview_charts
from headrace.web.guard import may_only_look
from headrace.web.listing import groups_of, topics_of
from headrace.web.problems import EXPECTED, sentence_of, status_of
from headrace.web.site import Site

PREFIX = "/api/v1"
BODY_MAX = 4 << 20
"""Room for a dead letter's new value (`Redrive.value`)."""
encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    summary: str
    wants: type
    answers: type
    run: Callable[[Site, Any], Awaitable[Any]]


async def _overview(site: Site, _: model.NoParameters) -> model.Overview:
    return site.overview


async def _groups(site: Site, choice: model.GroupsChoice) -> model.GroupRows:
    return groups_of(site.overview, choice)


async def _topics(site: Site, choice: model.TopicsChoice) -> model.TopicRows:
    return topics_of(site.overview, choice)


async def _group(site: Site, choice: model.GroupChoice) -> model.GroupPage:
    return await queries.group_page(site, choice.group)


async def _group_config(site: Site, choice: model.GroupChoice) -> model.ConfigRows:
    return model.ConfigRows(configs=await queries.group_configs(site, choice.group))


async def _charts(site: Site, choice: model.MaybeGroup) -> model.Charts:
    if choice.group is None:
        return overview_charts(site.history, {group.group_id for group in site.overview.share_groups})
    return group_charts(site.history, choice.group, is_live=site.source.detail is not None)


async def _topic(site: Site, choice: model.TopicChoice) -> model.TopicPage:
    return await queries.topic_page(site, choice.topic)


async def _dead_letters(site: Site, choice: model.MaybeTopic) -> model.DeadLettersPage:
    return await letters.dead_letters_page(site, choice.topic)


async def _session(site: Site, _: model.NoParameters) -> model.Session:
    return model.Session(csrf_token=site.csrf_token, is_read_only=site.options.is_read_only)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/overview", "Brokers, topics and groups, with rates and lag, as last sampled.",
              model.NoParameters, model.Overview, _overview),
    Operation("GET", "/groups", "Groups with what is wrong with them, the worst first: one page.",
              model.GroupsChoice, model.GroupRows, _groups),
    Operation("GET", "/group", "One group: members, and windows (share) or offsets (consumer).",
              model.GroupChoice, model.GroupPage, _group),
    Operation("GET", "/history", "A share-partition at a time in the past, as far back as its state is kept.",
              model.HistoryChoice, model.HistoryPage, time_machine.history_page),
    Operation("GET", "/group/config", "Every config of a group.",
              model.GroupChoice, model.ConfigRows, _group_config),
    Operation("GET", "/group/scale", "How many members a group needs to finish its lag in drain_s seconds.",
              model.ScaleChoice, model.GroupScale, queries.group_scale),
    Operation("GET", "/group/scheduled", "What a group of a queue sends later, the next due first.",
              model.ScheduledChoice, model.ScheduledPage, scheduled.scheduled_page),
    Operation("GET", "/charts", "What has been sampled: of the cluster, or of one group.",
              model.MaybeGroup, model.Charts, _charts),
    Operation("GET", "/record", "One record; for a share group its state, holder and time left too.",
              model.RecordChoice, model.RecordPage, queries.microscope),
    Operation("GET", "/topics", "Topics: one page.", model.TopicsChoice, model.TopicRows, _topics),
    Operation("GET", "/topic", "One topic: partitions, readers, sizes and configs.",
              model.TopicChoice, model.TopicPage, _topic),
    Operation("GET", "/records", "Records of a topic or partition, from an offset or a time on, by key or text.",
              model.RecordsChoice, model.RecordsPage, browse.records_page),
    Operation("GET", "/dead-letters", "Dead letters: all topics, or one topic by cause with its newest letters.",
              model.MaybeTopic, model.DeadLettersPage, _dead_letters),
    Operation("GET", "/dead-letter", "One dead letter: cause, traceback, attempts, where it was, its content.",
              model.LetterChoice, model.LetterPage, letters.letter_page),
    Operation("GET", "/processes", "Workers and Spark queries: tasks, run times, failures, micro-batches.",
              model.NoParameters, model.ProcessesPage, processes.processes_page),
    Operation("GET", "/session", "The secret that requests which change something must carry in X-CSRF-Token.",
              model.NoParameters, model.Session, _session),
    Operation("POST", "/group/reset", "Moves the start offsets of a share group without members.",
              model.ResetOffsets, model.ResetDone, actions.reset_offsets),
    Operation("POST", "/group/delete", "Deletes a group without members.",
              model.GroupChoice, model.Done, actions.delete_group),
    Operation("POST", "/group/config", "Sets configs of a group; null puts one back to its default.",
              model.SetConfig, model.Done, actions.set_config),
    Operation("POST", "/group/scheduled/cancel", "Cancels a scheduled record, unless its time is over.",
              model.CancelScheduled, model.Done, scheduled.cancel_scheduled),
    Operation("POST", "/topic/create", "Creates a topic.", model.CreateTopic, model.Done, actions.create_topic),
    Operation("POST", "/topic/delete", "Deletes a topic with all its records; its name is given twice.",
              model.DeleteTopic, model.Done, actions.delete_topic),
    Operation("POST", "/record/release", "Takes an acquired record from its holder (embedded broker only).",
              model.HeldRecord, model.Done, actions.release_record),
    Operation("POST", "/dead-letters/redrive", "Sends dead letters back to where they came from.",
              model.Redrive, RedriveResult, actions.redrive),
    Operation("POST", "/dead-letters/discard", "Marks dead letters as discarded, so that they no longer wait.",
              model.Discard, RedriveResult, actions.discard),
)  # fmt: skip


def routes() -> list[Route]:
    return [
        Route(PREFIX + operation.path, _endpoint(operation), methods=[operation.method])
        for operation in OPERATIONS
    ]


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            wanted = await _wanted(operation, request)
            found = await operation.run(request.app.state.site, wanted)
        except EXPECTED as error:
            return problem(error)
        if may_only_look(request):
            found = _for_a_viewer(found)
        return Response(encode(found), media_type="application/json")

    return answer


def _for_a_viewer(found: Any) -> Any:
    """What says whether the one who asks may change something is about them, not about the dashboard."""
    if isinstance(found, model.Overview | model.Session):
        return replace(found, is_read_only=True)
    return replace(found, may_release=False) if isinstance(found, model.RecordPage) else found


def problem(error: Exception) -> Response:
    said = model.Problem(error=sentence_of(error))
    return Response(encode(said), status_of(error), media_type="application/json")


def parse(kind: type, given: Any, *, strict: bool) -> Any:
    """An object of the type, or ValueError that names what does not fit."""
    if not isinstance(given, dict):
        raise ValueError(f"expected an object with {_names(kind)}")
    unknown = [name for name in given if name not in {each.name for each in fields(kind)}]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is unknown; expected one of {_names(kind)}")
    return msgspec.convert(given, kind, strict=strict)


async def _wanted(operation: Operation, request: Request) -> Any:
    if operation.method == "GET":
        return parse(operation.wants, parameters(request), strict=False)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ValueError("send the request's body as application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_MAX:
            raise ValueError(f"the request's body is longer than {BODY_MAX} bytes")
    try:
        given = msgspec.json.decode(bytes(body))
    except RecursionError:
        raise ValueError("the request's body is nested too deeply") from None
    return parse(operation.wants, given, strict=True)


def parameters(request: Request) -> dict[str, str]:
    """The query's values; an empty one is one that was not given, as forms send them."""
    return {name: value for name, value in request.query_params.items() if value != ""}


def _names(kind: type) -> str:
    return ", ".join(each.name for each in fields(kind)) or "nothing"
