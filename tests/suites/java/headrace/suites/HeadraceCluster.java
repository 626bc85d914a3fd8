package headrace.suites;

import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ControllerRequestContext;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** The cluster of one test: one Headrace broker with node id 0, in a process of its own. */
public final class HeadraceCluster implements ClusterInstance {
    private static final int NODE = 0;
    /** As in Apache Kafka's test kit. */
    private static final int CONTROLLER = 3000;
    private final ClusterConfig config;
    private final KafkaBroker broker = FromOutside.of(this, KafkaBroker.class, new BrokerAnswers());
    private final ControllerServer controller = FromOutside.of(this, ControllerServer.class, new ControllerServerAnswers());
    private Path folder;
    private int port;
    private BrokerProcess process;
    private boolean isStopped;
    private volatile String notApplicable;

    public HeadraceCluster(ClusterConfig config) {
        this.config = config;
    }

    /** Why the test cannot apply, once it has asked for what there is not. */
    public Optional<String> notApplicable() {
        return Optional.ofNullable(notApplicable);
    }

    NotApplicable cannot(String reason) {
        if (notApplicable == null) notApplicable = reason;
        return new NotApplicable(reason);
    }

    @Override
    public void start() {
        if (process != null) return;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
            folder = Files.createTempDirectory("headrace-suite");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        process = new BrokerProcess(folder, settings());
        process.start();
        config.features().forEach((feature, level) -> setLevel(feature.featureName(), level));
    }

    /** Apache Kafka formats its cluster with the level. What a transaction does is much the same on each of them. */
    private void setLevel(String feature, short level) {
        if (feature.equals(Feature.TRANSACTION_VERSION.featureName())) return;
        short now = ask(admin -> admin.describeFeatures().featureMetadata().get()).finalizedFeatures()
            .getOrDefault(feature, new FinalizedVersionRange((short) 0, (short) 0)).maxVersionLevel();
        if (now == level) return;
        UpgradeType kind = level > now ? UpgradeType.UPGRADE : UpgradeType.SAFE_DOWNGRADE;
        try {
            ask(admin -> admin.updateFeatures(Map.of(feature, new FeatureUpdate(level, kind)), new UpdateFeaturesOptions()).all().get());
        } catch (ApiException error) {
            throw cannot("formats the cluster with " + feature + "=" + level + "; Headrace has level " + now);
        }
    }

    private Properties settings() {
        String listener = config.brokerListenerName().value();
        SecurityProtocol protocol = config.brokerSecurityProtocol();
        if (protocol == SecurityProtocol.SSL || protocol == SecurityProtocol.SASL_SSL)
            throw cannot("needs certificates that Apache Kafka's test kit makes in its own JVM");
        Properties settings = new Properties();
        if (protocol == SecurityProtocol.SASL_PLAINTEXT) settings.putAll(saslSettings(listener));
        config.serverProperties().forEach((name, value) -> settings.put(name, isOfReplicas(name) ? "1" : value));
        config.perServerOverrideProperties().getOrDefault(NODE, Map.of()).forEach(settings::put);
        settings.put("node.id", Integer.toString(NODE));
        settings.put("log.dirs", folder.resolve("data").toString());
        settings.putIfAbsent("listeners", listener + "://localhost:" + port);
        settings.putIfAbsent("listener.security.protocol.map", listener + ":" + protocol.name);
        return settings;
    }

    /** Settings for a number of brokers: there is one here, whatever the test would have. */
    private static boolean isOfReplicas(String name) {
        return name.endsWith("replication.factor") || name.endsWith("min.isr") || name.equals("min.insync.replicas");
    }

    private static Map<String, String> saslSettings(String listener) {
        String jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            + " username=\"" + JaasUtils.KAFKA_PLAIN_ADMIN + "\" password=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\""
            + " user_" + JaasUtils.KAFKA_PLAIN_ADMIN + "=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\""
            + " user_" + JaasUtils.KAFKA_PLAIN_USER1 + "=\"" + JaasUtils.KAFKA_PLAIN_USER1_PASSWORD + "\";";
        return Map.of(
            "sasl.enabled.mechanisms", "PLAIN",
            "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found", "false",
            "super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN,
            "listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config", jaas);
    }

    @Override
    public boolean started() {
        return process != null;
    }

    @Override
    public void stop() {
        if (process == null || isStopped) return;
        isStopped = true;
        process.stop();
    }

    @Override
    public boolean stopped() {
        return isStopped;
    }

    /** Stops what still runs and removes what was written. */
    public void delete() throws IOException {
        stop();
        if (folder == null) return;
        try (Stream<Path> found = Files.walk(folder)) {
            found.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    @Override
    public void shutdownBroker(int id) {
        known(id).stop();
    }

    @Override
    public void startBroker(int id) {
        known(id).start();
    }

    private BrokerProcess known(int id) {
        if (id == CONTROLLER) throw cannot("needs a controller of its own");
        if (id != NODE) throw cannot("needs broker " + id + ": Headrace is one broker");
        return process;
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return Map.of(NODE, broker);
    }

    /**
     * The controller by its id, for tests that ask it. There are no values: tests pass those on to helpers that wait
     * until every node has seen a change, and the broker is the only one.
     */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new AbstractMap<>() {
            @Override
            public Set<Entry<Integer, ControllerServer>> entrySet() {
                return Set.of();
            }

            @Override
            public ControllerServer get(Object id) {
                return id.equals(CONTROLLER) ? controller : null;
            }
        };
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public Set<Integer> controllerIds() {
        return Set.of(CONTROLLER);
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        throw cannot("needs a controller of its own");
    }

    @Override
    public String bootstrapServers() {
        return "localhost:" + port;
    }

    @Override
    public String bootstrapControllers() {
        throw cannot("needs a controller of its own");
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return List.of(port);
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        throw cannot("needs a controller of its own");
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public String clusterId() {
        return ask(admin -> admin.describeCluster().clusterId().get());
    }

    @Override
    public Admin admin(Map<String, Object> configs, boolean usingBootstrapControllers) {
        return OneReplica.of(ClusterInstance.super.admin(configs, usingBootstrapControllers), config.numBrokers());
    }

    @Override
    public void waitForReadyBrokers() {
        clusterId();
    }

    @Override
    public void createTopic(String topic, int partitions, short replicas, Map<String, String> settings)
            throws InterruptedException {
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(settings);
        try {
            ask(admin -> admin.createTopics(List.of(wanted)).all().get());
        } catch (TopicExistsException error) {
            // Kafka's own cluster does not look at the answer, and a few tests create a topic twice.
        }
        waitTopicCreation(topic, partitions);
    }

    @Override
    public void createTopicWithAssignment(String topic, Map<Integer, List<Integer>> assignment) {
        throw cannot("places replicas on several brokers: Headrace is one broker");
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        TestUtils.waitForCondition(() -> partitionsOf(topic) == partitions, topic + " has not " + partitions + " partitions");
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        TestUtils.waitForCondition(() -> partitionsOf(topic) == 0, topic + " was not deleted");
    }

    private int partitionsOf(String topic) {
        return described(topic).map(found -> found.partitions().size()).orElse(0);
    }

    /** One broker agrees with itself. */
    @Override
    public void ensureConsistentMetadata() {
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        Set<AccessControlEntry> wanted = new HashSet<>(entries);
        TestUtils.waitForCondition(() -> ask(admin -> admin.describeAcls(filter).values().get()).stream()
            .map(binding -> binding.entry()).collect(Collectors.toSet()).equals(wanted), "ACLs are not " + wanted);
    }

    private Optional<TopicDescription> described(String topic) {
        return ask(admin -> {
            try {
                return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic));
            } catch (ExecutionException error) {
                if (error.getCause() instanceof UnknownTopicOrPartitionException) return Optional.empty();
                throw error;
            }
        });
    }

    private interface Question<T> {
        T to(Admin admin) throws ExecutionException, InterruptedException;
    }

    private <T> T ask(Question<T> question) {
        try (Admin admin = admin()) {
            return question.to(admin);
        } catch (ExecutionException error) {
            throw error.getCause() instanceof RuntimeException cause ? cause : new RuntimeException(error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RuntimeException(error);
        }
    }

    /** What can be said of the broker without being inside it. */
    public final class BrokerAnswers {
        private final MetadataCache metadata = FromOutside.of(HeadraceCluster.this, MetadataCache.class, new MetadataAnswers());

        public MetadataCache metadataCache() {
            return metadata;
        }

        /** The broker's settings, and Apache Kafka's defaults for the others. */
        public KafkaConfig config() {
            Properties known = settings();
            known.put("process.roles", "broker");
            known.put("controller.listener.names", "CONTROLLER");
            known.put("controller.quorum.bootstrap.servers", "localhost:" + port);
            known.putIfAbsent("inter.broker.listener.name", config.brokerListenerName().value());
            known.merge("listener.security.protocol.map", "CONTROLLER:PLAINTEXT", (one, other) -> one + "," + other);
            return KafkaConfig.fromProps(known, false);
        }

        public SocketServer socketServer() {
            return FromOutside.of(HeadraceCluster.this, SocketServer.class, new SocketAnswers());
        }

        public GroupCoordinator groupCoordinator() {
            return FromOutside.of(HeadraceCluster.this, GroupCoordinator.class, new GroupAnswers());
        }

        public boolean isShutdown() {
            return !process.isRunning();
        }

        /** {@link HeadraceCluster#shutdownBroker} has waited. */
        public void awaitShutdown() {
        }

        public void shutdown() {
            process.stop();
        }

        public void shutdown(Duration patience) {
            process.stop();
        }

        public void startup() {
            process.start();
        }

        public int boundPort(ListenerName listener) {
            return port;
        }

        public String clusterId() {
            return HeadraceCluster.this.clusterId();
        }
    }

    /** Where the broker listens. */
    public final class SocketAnswers {
        public int boundPort(ListenerName listener) {
            return port;
        }
    }

    /** What tests create the topic of groups with. There is one already. */
    public static final class GroupAnswers {
        public Properties groupMetadataTopicConfigs() {
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            return configs;
        }
    }

    /** The controller, which is the broker. */
    public final class ControllerServerAnswers {
        public Controller controller() {
            return FromOutside.of(HeadraceCluster.this, Controller.class, new ControllerAnswers());
        }
    }

    /** What clients can ask, too. */
    public final class ControllerAnswers {
        public CompletableFuture<Map<String, Uuid>> findAllTopicIds(ControllerRequestContext context) {
            Set<String> names = new MetadataAnswers().getAllTopics();
            return CompletableFuture.completedFuture(ask(admin -> admin.describeTopics(names).allTopicNames().get())
                .entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, found -> found.getValue().topicId())));
        }
    }

    /** The broker's metadata as a client sees it. */
    public final class MetadataAnswers {
        public List<Node> getAliveBrokerNodes(ListenerName listener) {
            return process.isRunning() ? List.of(node()) : List.of();
        }

        public Optional<Node> getAliveBrokerNode(int id, ListenerName listener) {
            return id == NODE && process.isRunning() ? Optional.of(node()) : Optional.empty();
        }

        public boolean hasAliveBroker(int id) {
            return id == NODE && process.isRunning();
        }

        public Set<String> getAllTopics() {
            return ask(admin -> admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get());
        }

        public boolean contains(String topic) {
            return described(topic).isPresent();
        }

        public boolean contains(TopicPartition partition) {
            return partition.partition() < partitionsOf(partition.topic());
        }

        public Uuid getTopicId(String topic) {
            return described(topic).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID);
        }

        public Optional<Integer> numPartitions(String topic) {
            return described(topic).map(found -> found.partitions().size());
        }

        public Optional<LeaderAndIsr> getLeaderAndIsr(String topic, int partition) {
            return partition < partitionsOf(topic) ? Optional.of(new LeaderAndIsr(NODE, List.of(NODE))) : Optional.empty();
        }

        private Node node() {
            return new Node(NODE, "localhost", port);
        }
    }
}
