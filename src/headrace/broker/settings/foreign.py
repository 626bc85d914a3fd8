"""Settings of Apache Kafka 4.3's brokers that change nothing here, with the reason told to whoever sets one.

Those that Kafka takes on a running broker are taken here too, checked and shown again: its tools set them.
"""

from dataclasses import replace

from headrace.base.settings import ConfigType
from headrace.broker.settings.setting import Scope, ScopedSetting, row

_NAMES_BY_REASON: dict[str, str] = {
    "one event loop does this work in another way": """
        add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms background.threads
        delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests group.coordinator.append.linger.ms
        group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
        group.coordinator.rebalance.protocols group.coordinator.threads log.cleaner.dedupe.buffer.size
        log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
        log.cleaner.threads log.flush.offset.checkpoint.interval.ms
        log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
        num.io.threads
        num.network.threads offsets.commit.timeout.ms offsets.load.buffer.size
        offsets.topic.compression.codec producer.purgatory.purge.interval.requests
        share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
        share.coordinator.load.buffer.size share.coordinator.state.topic.compression.codec
        share.coordinator.threads share.coordinator.write.timeout.ms
        share.fetch.purgatory.purge.interval.requests
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        transaction.state.log.load.buffer.size
    """,
    "each connection is bounded by itself, so that a slow client holds back nobody else": """
        queued.max.request.bytes queued.max.requests
    """,
    "the operating system sizes its buffers": """
        socket.receive.buffer.bytes socket.send.buffer.bytes
    """,
    "compacted topics are always compacted": """
        log.cleaner.enable
    """,
    "a group changes its protocol only while it is empty": """
        group.consumer.migration.policy
    """,
    "subscriptions by pattern follow the topics at once": """
        group.consumer.regex.refresh.interval.ms
    """,
    "a request names its own time limit": """
        request.timeout.ms
    """,
    "it is done when it is due, not at intervals": """
        transaction.abort.timed.out.transaction.cleanup.interval.ms
    """,
    "two-phase commit is not offered": """
        transaction.two.phase.commit.enable
    """,
    "policies are Java classes, which this broker cannot load": """
        alter.config.policy.class.name create.topic.policy.class.name
    """,
    "one node has no replicas to copy to or from": """
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        auto.leader.rebalance.enable broker.heartbeat.interval.ms broker.session.timeout.ms
        controlled.shutdown.enable follower.fetch.last.tiered.offset.enable inter.broker.listener.name
        leader.imbalance.check.interval.seconds num.replica.alter.log.dirs.threads num.replica.fetchers
        replica.fetch.backoff.ms replica.fetch.max.bytes replica.fetch.min.bytes
        replica.fetch.response.max.bytes replica.fetch.wait.max.ms
        replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
        replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
        replication.quota.window.size.seconds unclean.leader.election.interval.ms
    """,
    "references are resolved at the start only": """
        config.providers
    """,
    "use node.id": """
        broker.id
    """,
    "there are no client quotas": """
        client.quota.callback.class quota.window.num quota.window.size.seconds
    """,
    "Kerberos is not supported": """
        sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
        sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
    """,
    "delegation tokens are not supported": """
        delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
        delegation.token.max.lifetime.ms delegation.token.secret.key
    """,
    "a single node opens no connections to other brokers": """
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.mechanism.controller.protocol sasl.mechanism.inter.broker.protocol
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url
        security.inter.broker.protocol ssl.endpoint.identification.algorithm
    """,
    "OpenSSL decides this": """
        security.providers ssl.keymanager.algorithm ssl.protocol ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm
    """,
    "a certificate may be replaced by any other": """
        ssl.allow.dn.changes ssl.allow.san.changes
    """,
    "keys that cannot be read are requested again at the next refresh": """
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    """,
    "there is no separate controller": """
        controller.performance.always.log.threshold.ms
        controller.performance.sample.period.ms controller.quorum.append.linger.ms
        controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
        controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
        controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
        controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
        controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
        controller.quota.window.size.seconds controller.socket.timeout.ms early.start.listeners
        initial.broker.registration.timeout.ms process.roles server.max.startup.time.ms
        unstable.api.versions.enable unstable.feature.versions.enable
    """,
    "there is one data directory: log.dirs, or --data": """
        cordoned.log.dirs log.dir log.dir.failure.timeout.ms num.recovery.threads.per.data.dir
    """,
    "share-partitions are initialized as soon as a member joins": """
        group.share.initialize.retry.interval.ms
    """,
    "a share-partition's snapshot is renewed when pruning has to wait for it": """
        share.coordinator.cold.partition.snapshot.interval.ms
    """,
    "share state is kept in __share_group_state, and nowhere else": """
        group.share.persister.class.name
    """,
    "streams groups are not offered": """
        group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
        group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
        group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
        group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
        group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
        group.streams.num.standby.replicas group.streams.session.timeout.ms
    """,
    "cluster metadata is kept in SQLite": """
        internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms
        metadata.max.retention.bytes metadata.max.retention.ms
    """,
    "metrics are not set up this way": """
        kafka.metrics.polling.interval.secs kafka.metrics.reporters metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms telemetry.max.bytes
    """,
    "there is no tiered storage": """
        remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
        remote.log.reader.threads remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
        remote.log.storage.system.enable
    """,
}

FOREIGN: dict[str, str] = {
    name: reason for reason, names in _NAMES_BY_REASON.items() for name in names.split()
}

REFUSED = (
    "alter.config.policy.class.name",
    "client.quota.callback.class",
    "create.topic.policy.class.name",
)
"""What limits clients in Kafka. A broker that ignored it would allow more than its settings say."""

# Name, type and default in Kafka 4.3 ("-" for none, nothing for an empty one).
_DYNAMIC = """
    background.threads int 10 min=1
    config.providers list
    cordoned.log.dirs list
    follower.fetch.last.tiered.offset.enable boolean false
    group.coordinator.cached.buffer.max.bytes int 1048588
    group.streams.assignment.interval.ms int 1000
    log.cleaner.dedupe.buffer.size long 134217728
    log.cleaner.io.buffer.load.factor double 0.9
    log.cleaner.io.buffer.size int 524288
    log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308
    log.cleaner.threads int 1 min=1
    metric.reporters list org.apache.kafka.common.metrics.JmxReporter
    num.io.threads int 8 min=1
    num.network.threads int 3 min=1
    num.recovery.threads.per.data.dir int 2 min=1
    num.replica.fetchers int 1 min=1
    remote.fetch.max.wait.ms int 500
    remote.list.offsets.request.timeout.ms long 30000
    remote.log.index.file.cache.total.size.bytes long 1073741824
    remote.log.manager.copier.thread.pool.size int 10
    remote.log.manager.copy.max.bytes.per.second long 9223372036854775807
    remote.log.manager.expiration.thread.pool.size int 10
    remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807
    remote.log.manager.follower.thread.pool.size int 2
    remote.log.reader.threads int 10 min=1
    sasl.kerberos.kinit.cmd string /usr/bin/kinit
    sasl.kerberos.min.time.before.relogin long 60000
    sasl.kerberos.principal.to.local.rules list DEFAULT
    sasl.kerberos.service.name string -
    sasl.kerberos.ticket.renew.jitter double 0.05
    sasl.kerberos.ticket.renew.window.factor double 0.8
    sasl.login.refresh.buffer.seconds short 300
    sasl.login.refresh.min.period.seconds short 60
    sasl.login.refresh.window.factor double 0.8
    sasl.login.refresh.window.jitter double 0.05
    sasl.mechanism.inter.broker.protocol string GSSAPI
    share.coordinator.cached.buffer.max.bytes int 1048588
    ssl.endpoint.identification.algorithm string https
    ssl.keymanager.algorithm string SunX509
    ssl.protocol string TLSv1.3
    ssl.provider string -
    ssl.secure.random.implementation string -
    ssl.trustmanager.algorithm string PKIX
"""


def _row(line: str) -> ScopedSetting:
    name, kind, *rest = line.split()
    minimum = 1 if rest and rest[-1] == "min=1" else None
    text = rest[0] if rest and not rest[0].startswith("min=") else ""
    doc = f"Has no effect: {FOREIGN[name]}."
    marks = {"is_dynamic": True, "is_internal": True, "has_effect": False}
    setting = row(Scope.BROKER, name, ConfigType[kind.upper()], None, doc, minimum=minimum, **marks)
    return replace(setting, default=None if text == "-" else setting.parse(text))


FOREIGN_DYNAMIC: tuple[ScopedSetting, ...] = tuple(_row(line) for line in _DYNAMIC.strip().splitlines())
