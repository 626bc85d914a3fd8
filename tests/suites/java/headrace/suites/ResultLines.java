package headrace.suites;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Writes a line for every test at its end, so that the results of a run that is cut short are known: outcome, class,
 * test, milliseconds and reason, with tabs between them. The file is the one in {@code headrace.suite.results}.
 */
public final class ResultLines implements TestExecutionListener {
    private static final Pattern INVOCATION = Pattern.compile("#(\\d+)\\]$");
    private final Map<String, Long> startedAt = new ConcurrentHashMap<>();

    @Override
    public void executionStarted(TestIdentifier test) {
        startedAt.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        // A class or a template that fails as a whole has no tests that could tell.
        if (test.isTest() || result.getStatus() == TestExecutionResult.Status.FAILED)
            write(test, result.getStatus().name(), result.getThrowable().map(ResultLines::told).orElse(""));
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        write(test, "SKIPPED", reason);
    }

    private static String told(Throwable error) {
        String message = error.getMessage() == null ? "" : error.getMessage();
        return error instanceof org.opentest4j.TestAbortedException ? message : error.getClass().getSimpleName() + ": " + message;
    }

    private synchronized void write(TestIdentifier test, String outcome, String reason) {
        long started = startedAt.getOrDefault(test.getUniqueId(), System.nanoTime());
        long milliseconds = (System.nanoTime() - started) / 1_000_000;
        String line = String.join("\t", outcome, className(test), name(test), Long.toString(milliseconds),
            reason.replaceAll("\\s+", " ")) + "\n";
        try {
            Files.writeString(Path.of(System.getProperty("headrace.suite.results")), line,
                StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static String className(TestIdentifier test) {
        return test.getSource().map(source -> source instanceof MethodSource method ? method.getClassName()
            : source instanceof ClassSource whole ? whole.getClassName() : "").orElse("");
    }

    /** The method's name, with a number for each invocation of a template but the first. */
    private static String name(TestIdentifier test) {
        String method = test.getSource().filter(MethodSource.class::isInstance)
            .map(source -> ((MethodSource) source).getMethodName()).orElse(test.getDisplayName());
        Matcher invocation = INVOCATION.matcher(test.getUniqueId());
        return invocation.find() && !invocation.group(1).equals("1") ? method + "[" + invocation.group(1) + "]" : method;
    }
}
