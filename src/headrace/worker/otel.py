"""OpenTelemetry for a queue: a span for every send and every run, in one trace. Needs `pip install headrace[otel]`.

    from headrace.worker.otel import OpenTelemetry

    queue.use(OpenTelemetry())

The context travels in the record's headers (W3C `traceparent`, or what the global propagator is). The span of a run is
a child of the span of its send, and linked to it; retries and redeliveries are further children. Names and attributes
follow the semantic conventions for messaging. A task with `batch` has one span for each call, linked to every send.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TracerProvider

from headrace.version import __version__
from headrace.worker.hooks import Middleware, OutgoingTask, TaskRun
from headrace.worker.outcomes import Reject, Retry


class OpenTelemetry(Middleware):
    """`tracer_provider` is the global one unless given."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("headrace.worker", __version__, tracer_provider)

    @contextmanager
    def around_send(self, outgoing: OutgoingTask) -> Iterator[None]:
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": outgoing.topic,
            **_key(outgoing.key),
        }
        with self._tracer.start_as_current_span(
            f"send {outgoing.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            outgoing.headers.update({name: value.encode() for name, value in carrier.items()})
            yield

    @contextmanager
    def around_run(self, run: TaskRun) -> Iterator[None]:
        contexts = [_context_of(each) for each in run.batch or (run,)]
        senders = [trace.get_current_span(each).get_span_context() for each in contexts]
        with self._tracer.start_as_current_span(
            f"process {run.topic}",
            context=contexts[0] if run.batch is None else None,
            kind=SpanKind.CONSUMER,
            attributes=_attributes(run),
            links=[Link(sender) for sender in senders if sender.is_valid],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (Retry, Reject) as asked:
                span.set_attribute("headrace.outcome", type(asked).__name__.lower())
                raise
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                span.record_exception(error)
                raise


def _context_of(run: TaskRun) -> Context:
    return propagate.extract({name: (value or b"").decode("utf-8", "replace") for name, value in run.headers})


def _attributes(run: TaskRun) -> Mapping[str, Any]:
    shared = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": run.topic,
        "messaging.consumer.group.name": run.group_id,
        "headrace.task": run.task,
    }
    if run.batch is not None:
        return {**shared, "messaging.batch.message_count": len(run.batch)}
    return {
        **shared,
        "messaging.destination.partition.id": str(run.partition),
        "messaging.kafka.offset": run.offset,
        "headrace.attempt": run.attempt,
        "headrace.delivery_count": run.delivery_count,
        **_key(run.key),
    }


def _key(key: bytes | None) -> dict[str, str]:
    return {} if key is None else {"messaging.kafka.message.key": key.decode("utf-8", "replace")}
