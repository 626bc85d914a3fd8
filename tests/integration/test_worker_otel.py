"""OpenTelemetry: sends and runs are in one trace, with links, attributes and errors, by the SDK's own exporter."""

import asyncio

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headrace.worker import Backoff, Batch, Queue
from headrace.worker.otel import OpenTelemetry
from headrace.worker.testing import QueueTest


def test_a_send_and_its_runs_are_one_trace():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    runs = []
    with Queue("localhost:1", group_id="mailers") as queue:
        queue.use(OpenTelemetry(provider))

        @queue.task("emails", retries=Backoff(first=1, most=1))
        async def send(body: str) -> None:
            with tracer.start_as_current_span("inside"):
                await asyncio.sleep(0)
            runs.append(trace.get_current_span().get_span_context().span_id)
            if len(runs) == 1:
                raise ValueError("broken")

        with QueueTest(queue) as test:
            with tracer.start_as_current_span("request"):
                send.send("ada", key="k")
            test.run_until_idle()
            test.advance(2)
            test.run_until_idle()
            (record,) = test.records("emails")

    spans = {kind: [each for each in exporter.get_finished_spans() if each.kind is kind] for kind in SpanKind}
    (sent,) = spans[SpanKind.PRODUCER]
    failed, succeeded = spans[SpanKind.CONSUMER]
    request = next(each for each in exporter.get_finished_spans() if each.name == "request")
    inside = [each for each in exporter.get_finished_spans() if each.name == "inside"]

    assert (sent.name, sent.parent.span_id) == ("send emails", request.context.span_id)
    assert f"{sent.context.span_id:016x}" in record.headers["traceparent"]
    assert {each.context.trace_id for each in (sent, failed, succeeded, *inside)} == {
        request.context.trace_id
    }
    for run in (failed, succeeded):
        assert run.name == "process emails"
        assert run.parent.span_id == run.links[0].context.span_id == sent.context.span_id
        assert run.attributes["messaging.system"] == "kafka"
        assert run.attributes["messaging.destination.name"] == "emails"
        assert run.attributes["messaging.consumer.group.name"] == "mailers"
        assert run.attributes["messaging.kafka.offset"] == 0
        assert run.attributes["messaging.kafka.message.key"] == "k"
    assert (
        [each.parent.span_id for each in inside]
        == runs
        == [failed.context.span_id, succeeded.context.span_id]
    )
    assert (failed.status.status_code, failed.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert failed.events[0].name == "exception"
    assert succeeded.status.status_code is StatusCode.UNSET
    assert (failed.attributes["headrace.attempt"], succeeded.attributes["headrace.attempt"]) == (1, 2)


def test_a_batch_is_one_span_with_a_link_to_each_send():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with Queue("localhost:1", group_id="mailers") as queue:
        queue.use(OpenTelemetry(provider))

        @queue.task("emails", batch=Batch(max=2, wait=1_000))
        async def send(bodies: list[str]) -> None: ...

        with QueueTest(queue) as test:
            for name in ("ada", "bob"):
                send.send(name)
            test.run_until_idle()

    spans = exporter.get_finished_spans()
    sent = {each.context.span_id for each in spans if each.kind is SpanKind.PRODUCER}
    (run,) = [each for each in spans if each.kind is SpanKind.CONSUMER]
    assert {link.context.span_id for link in run.links} == sent
    assert len(sent) == run.attributes["messaging.batch.message_count"] == 2
    assert run.parent is None
