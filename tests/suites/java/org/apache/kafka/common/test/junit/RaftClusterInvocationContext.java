package org.apache.kafka.common.test.junit;

import headrace.suites.HeadraceCluster;
import headrace.suites.NotApplicable;

import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.opentest4j.TestAbortedException;

import java.util.List;

/**
 * Takes the place of the class of this name in kafka-test-common-runtime, which must come later on the class path.
 * Tests with a {@code @ClusterTest} annotation then get one Headrace broker instead of Apache Kafka in the same JVM.
 * A test that needs what a broker in another process cannot give is aborted, with the reason.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String testName;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String testName, ClusterConfig config, boolean isCombined) {
        this.testName = testName;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocation) {
        return testName + " [" + invocation + "] " + String.join(", ", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        HeadraceCluster cluster = new HeadraceCluster(config);
        return List.of(
            (BeforeEachCallback) context -> {
                if (isCombined && config.clusterTypes().contains(Type.KRAFT))
                    throw new TestAbortedException("the same test with a combined controller, which is all the same here");
                try {
                    if (config.isAutoStart()) cluster.start();
                } catch (NotApplicable reason) {
                    throw new TestAbortedException(reason.getMessage());
                }
            },
            new AbortsWhereNotApplicable(cluster),
            (AfterTestExecutionCallback) context -> cluster.stop(),
            (AfterEachCallback) context -> cluster.delete(),
            new ClusterInstanceParameterResolver(cluster));
    }

    /** The first call that could not be answered decides, whatever the test made of it. */
    private record AbortsWhereNotApplicable(HeadraceCluster cluster)
            implements TestExecutionExceptionHandler, LifecycleMethodExecutionExceptionHandler {

        @Override
        public void handleTestExecutionException(ExtensionContext context, Throwable error) throws Throwable {
            throw judged(error);
        }

        @Override
        public void handleBeforeEachMethodExecutionException(ExtensionContext context, Throwable error) throws Throwable {
            throw judged(error);
        }

        @Override
        public void handleAfterEachMethodExecutionException(ExtensionContext context, Throwable error) throws Throwable {
            throw judged(error);
        }

        private Throwable judged(Throwable error) {
            return cluster.notApplicable().<Throwable>map(reason -> new TestAbortedException(reason, error)).orElse(error);
        }
    }
}
