"""Every metric that is shown to Prometheus, in one table: Kafka's name, ours, and what it means.

Ours is what the usual JMX exporter rules (Strimzi's, for one) make of Kafka's: lower case, `PerSec` becomes `_total`.
So alerts and panels written for Apache Kafka fit. What Kafka does not have begins with `headrace_`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricName:
    kafka: str
    """As the broker counts it (`headrace.broker.metrics`)."""
    type: str
    """The `type` of Kafka's MBean."""
    help: str
    domain: str = "server"
    """The MBean is in `kafka.server`, or in another part of Kafka."""

    @property
    def prometheus(self) -> str:
        """Without the `_total` that Prometheus puts behind a counter."""
        if self.kafka.startswith("headrace_"):
            return self.kafka
        short = self.kafka.removesuffix("PerSec").removesuffix("-total")
        return f"kafka_{self.domain}_{self.type}_{short}".lower().replace("-", "_")


BROKER: tuple[MetricName, ...] = (
    MetricName("RecordAcknowledgementsPerSec", "ShareGroupMetrics",
               "Records acknowledged, by group and type: Accept, Release, Reject, Renew."),
    MetricName("PartitionLoadTimeMs", "ShareGroupMetrics", "How long loading a share-partition took."),
    MetricName("RequestTopicPartitionsFetchRatio", "ShareGroupMetrics",
               "Percentage of the asked-for partitions that a share fetch got records from."),
    MetricName("TopicPartitionsAcquireTimeMs", "ShareGroupMetrics",
               "How long a share fetch took to acquire its records."),
    MetricName("InFlightMessageCount", "SharePartitionMetrics",
               "Size of the window: offsets between start offset and end offset."),
    MetricName("InFlightBatchCount", "SharePartitionMetrics", "Ranges of like records in the window."),
    MetricName("AcquisitionLockTimeoutPerSec", "SharePartitionMetrics",
               "Records whose lock ran out before they were acknowledged."),
    MetricName("ShareSessionsCount", "ShareSessionCache", "Share sessions that are open."),
    MetricName("SharePartitionsCount", "ShareSessionCache", "Share-partitions that are loaded."),
    MetricName("ShareSessionEvictionsPerSec", "ShareSessionCache", "Share sessions that ended with their connection."),
    MetricName("ExpiresPerSec", "DelayedShareFetchMetrics", "Share fetches that waited their whole time."),
    MetricName("TotalShareFetchRequestsPerSec", "BrokerTopicMetrics", "ShareFetch requests."),
    MetricName("FailedShareFetchRequestsPerSec", "BrokerTopicMetrics", "ShareFetch requests refused as a whole."),
    MetricName("TotalShareAcknowledgementRequestsPerSec", "BrokerTopicMetrics", "ShareAcknowledge requests."),
    MetricName("FailedShareAcknowledgementRequestsPerSec", "BrokerTopicMetrics",
               "ShareAcknowledge requests refused as a whole."),
    MetricName("FailedProduceRequestsPerSec", "BrokerTopicMetrics", "Produce requests refused as a whole."),
    MetricName("FailedFetchRequestsPerSec", "BrokerTopicMetrics", "Fetch requests refused as a whole."),
    MetricName("MessagesInPerSec", "BrokerTopicMetrics", "Records produced, by topic."),
    MetricName("BytesInPerSec", "BrokerTopicMetrics", "Bytes of record batches produced, by topic."),
    MetricName("BytesOutPerSec", "BrokerTopicMetrics", "Bytes of record batches fetched, by topic."),
    MetricName("RequestsPerSec", "RequestMetrics", "Requests, by API.", domain="network"),
    MetricName("TotalTimeMs", "RequestMetrics",
               "Time from a request to its response, by API. Includes waiting for records and for the disk.",
               domain="network"),
    MetricName("ErrorsPerSec", "RequestMetrics", "Error codes in responses, by API and error.", domain="network"),
    MetricName("connection-count", "socket-server-metrics", "Connections that are open."),
    MetricName("successful-authentication-total", "socket-server-metrics", "Logins that succeeded, by listener."),
    MetricName("failed-authentication-total", "socket-server-metrics", "Logins that failed, by listener."),
    MetricName("LogFlushRateAndTimeMs", "LogFlushStats", "How long a sync (fdatasync) took.", domain="log"),
    MetricName("headrace_event_loop_lag_ms", "",
               "How late a timer of the broker's event loop was. All clients wait while the loop is busy."),
    MetricName("headrace_share_partition_window_limit", "",
               "`share.partition.max.record.locks` of the group: the size at which a window is full."),
    MetricName("PurgatorySize", "DelayedOperationPurgatory", "Requests that wait for records or their time."),
    MetricName("DeadLetterQueueRecordCount", "ShareGroupMetrics", "Dead letters written, by group."),
    MetricName("DeadLetterQueueTotalProduceRequestsPerSec", "ShareGroupMetrics",
               "Batches of dead letters that were written or tried, by group."),
    MetricName("DeadLetterQueueFailedProduceRequestsPerSec", "ShareGroupMetrics",
               "Times that dead letters could not be written, by group."),
    MetricName("group-count", "group-coordinator-metrics", "Groups, by protocol."),
    MetricName("share-group-count", "group-coordinator-metrics", "Share groups, by state."),
    MetricName("share-group-rebalance-count", "group-coordinator-metrics", "New assignments in share groups."),
    MetricName("write-total", "share-coordinator-metrics", "Writes to the share state topic."),
)  # fmt: skip

OURS: dict[str, str] = {
    "headrace_group_lag": "Records of a group that are not settled (share) or behind the committed offset (consumer).",
    "headrace_group_members": "Members of a group.",
    "headrace_share_group_in_flight": "Offsets in the windows of a share group; embedded broker only.",
    "headrace_topic_records": "Offsets between the starts and ends of a topic's logs.",
    "headrace_topic_partitions": "Partitions of a topic.",
    "headrace_topic_bytes": "Bytes of a topic on the brokers' disks, with all replicas.",
    "headrace_group_oldest_seconds": "Age of the oldest record that a group has not settled.",
    "headrace_dead_letters_waiting": "Dead letters in a topic that were neither redriven nor dropped.",
    "headrace_disk_free_bytes": "Free bytes on the volume of a broker's log directory.",
    "headrace_disk_total_bytes": "Size of the volume of a broker's log directory.",
    "headrace_brokers": "Brokers of the cluster.",
    "headrace_last_sample_timestamp_seconds": "When the cluster was last sampled successfully.",
    "headrace_build_info": "The version that runs, as a label; always 1.",
}

NOT_HERE: dict[str, str] = {
    "FetchLockTimeMs, FetchLockRatio": "A share-partition has no fetch lock: one thread serves all of them.",
    "InFlightBatchMessageCount": "InFlightMessageCount divided by InFlightBatchCount.",
    "share-group-rebalance-rate, write-rate": "`rate()` of the counter.",
    "write-latency-avg, write-latency-max": "The state is written in the turn of its request.",
    "last-pruned-offset": "The start offset of `__share_group_state`, as any topic's.",
}
