"""Settings of other clients that a share client cannot use: why not, and what to do instead."""

_GROUP_CONFIG = "`Admin.set_group_config(group, {{'{0}': …}})` or `headrace group config set GROUP {0}=…`"
_MEMBER = "the broker decides it for all members of a share group; set the group's {0} instead, with "

REFUSED_FOR_SHARE_GROUPS: dict[str, str] = {
    "auto.offset.reset": "where a new share group starts is a property of the group; set its share.auto.offset.reset, "
    "with " + _GROUP_CONFIG.format("share.auto.offset.reset"),
    "isolation.level": "which records are seen is a property of the group; set its share.isolation.level, with "
    + _GROUP_CONFIG.format("share.isolation.level"),
    "session.timeout.ms": _MEMBER.format("share.session.timeout.ms")
    + _GROUP_CONFIG.format("share.session.timeout.ms"),
    "heartbeat.interval.ms": _MEMBER.format("share.heartbeat.interval.ms")
    + _GROUP_CONFIG.format("share.heartbeat.interval.ms"),
    "enable.auto.commit": "a share group keeps no committed offsets; share.acknowledgement.mode says how records are "
    "acknowledged (implicit or explicit)",
    "auto.commit.interval.ms": "a share group keeps no committed offsets; share.acknowledgement.mode says how records "
    "are acknowledged (implicit or explicit)",
    "enable.auto.offset.store": "a share group stores no offsets; share.acknowledgement.mode says how records are "
    "acknowledged (implicit or explicit)",
    "group.instance.id": "share groups have no static members; leave it out",
    "group.protocol": "a share consumer has one protocol; leave it out",
    "group.remote.assignor": "the broker's group.share.assignors decides; leave it out",
    "partition.assignment.strategy": "the broker's group.share.assignors decides; leave it out",
    "interceptor.classes": "share consumers have no interceptors; wrap poll in a function of yours",
    "enable.partition.eof": "a share group has no position in a partition; leave it out",
    "allow.auto.create.topics": "a share consumer creates no topics; create them with Admin.create_topic",
}

_PARTITIONER = (
    "records with a key go where Kafka's default partitioner sends them; `send` takes another partition="
)
REFUSED_FOR_PRODUCERS: dict[str, str] = {
    "key.serializer": "give bytes, or text, which is sent as UTF-8: send(topic, value, key=...)",
    "value.serializer": "give bytes, or text, which is sent as UTF-8: send(topic, value)",
    "partitioner.class": _PARTITIONER,
    "partitioner": _PARTITIONER,
    "retries": "a record is tried until delivery.timeout.ms is over; set that",
    "message.send.max.retries": "a record is tried until delivery.timeout.ms is over; set that",
    "queue.buffering.max.messages": "the buffer is bounded in bytes; set buffer.memory",
    "queue.buffering.max.kbytes": "set buffer.memory, in bytes",
}

_CALLBACKS = (
    "this client has no Java classes; give sasl.username and sasl.password, or with OAUTHBEARER a function of yours, "
    "sasl.oauthbearer.token.provider=module:function"
)
REFUSED: dict[str, str] = {
    "key.deserializer": "give a callable: key_deserializer=lambda data: ...",
    "value.deserializer": "give a callable: value_deserializer=lambda data: ...",
    "ssl.engine.factory.class": "this client has no Java classes; give PEM files with ssl.truststore.location and "
    "ssl.keystore.location",
    "sasl.kerberos.service.name": "GSSAPI (Kerberos) is not supported; use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
    "OAUTHBEARER",
    "sasl.login.callback.handler.class": _CALLBACKS,
    "sasl.client.callback.handler.class": _CALLBACKS,
}

REFUSED_VALUES: dict[tuple[str, str], str] = {
    ("sasl.mechanism", "AWS_MSK_IAM"): "for Amazon MSK with IAM, set sasl.mechanism=OAUTHBEARER, and "
    "sasl.oauthbearer.token.provider=module:function with a function that returns the token of Amazon's signer "
    '("Tokens" in docs/reference/client-settings.md has it)',
    ("sasl.mechanism", "GSSAPI"): "Kerberos is not supported; connect to a listener that has one of these",
}
"""By the name of the setting and the value in capitals: what to do instead."""

NO_EFFECT: frozenset[str] = frozenset(
    {
        "api.version.request",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "enable.metrics.push",
        "max.partition.fetch.bytes",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.keepalive.enable",
        "ssl.protocol",
        "ssl.provider",
    }
)
"""Taken and passed over: what they change in other clients is not there to be changed here."""
