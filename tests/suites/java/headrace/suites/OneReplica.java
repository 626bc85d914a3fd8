package headrace.suites;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Collection;
import java.util.Optional;

/**
 * An admin client that creates topics with one replica where the brokers that the test would have could hold more, as
 * {@link HeadraceCluster#createTopic} does.
 */
final class OneReplica implements InvocationHandler {
    private final Admin admin;
    private final int brokers;

    private OneReplica(Admin admin, int brokers) {
        this.admin = admin;
        this.brokers = brokers;
    }

    static Admin of(Admin admin, int brokers) {
        if (brokers <= 1) return admin;
        return (Admin) Proxy.newProxyInstance(Admin.class.getClassLoader(), new Class<?>[] {Admin.class}, new OneReplica(admin, brokers));
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
        if (method.getName().equals("createTopics"))
            arguments[0] = ((Collection<?>) arguments[0]).stream().map(topic -> reduced((NewTopic) topic)).toList();
        try {
            return method.invoke(admin, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private NewTopic reduced(NewTopic topic) {
        short replicas = topic.replicationFactor();
        if (topic.replicasAssignments() != null || replicas <= 1 || replicas > brokers) return topic;
        Optional<Integer> partitions = topic.numPartitions() < 0 ? Optional.empty() : Optional.of(topic.numPartitions());
        return new NewTopic(topic.name(), partitions, Optional.of((short) 1)).configs(topic.configs());
    }
}
