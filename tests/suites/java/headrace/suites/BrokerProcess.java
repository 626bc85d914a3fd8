package headrace.suites;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;

/**
 * A broker started by the command in the environment variable {@code HEADRACE_SUITE_COMMAND} (one argument a line).
 * The command is a guard that prints the broker's process id and kills the broker when this JVM ends.
 */
final class BrokerProcess {
    private static final int STOP_S_MAX = 20;
    private final Path folder;
    private final Properties settings;
    private Process guard;
    private ProcessHandle broker;

    BrokerProcess(Path folder, Properties settings) {
        this.folder = folder;
        this.settings = settings;
    }

    boolean isRunning() {
        return guard != null && guard.isAlive();
    }

    void start() {
        Path file = folder.resolve("server.properties");
        Path log = folder.resolve("broker.log");
        List<String> command = new ArrayList<>(List.of(System.getenv("HEADRACE_SUITE_COMMAND").split("\n")));
        command.addAll(List.of("--config", file.toString()));
        try {
            try (Writer writer = Files.newBufferedWriter(file)) {
                settings.store(writer, null);
            }
            guard = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
            BufferedReader lines = new BufferedReader(new InputStreamReader(guard.getInputStream()));
            String pid = lines.readLine();
            String line = pid == null ? null : lines.readLine();
            if (line == null || !line.startsWith("listening"))
                throw new IllegalStateException("the broker did not start: " + Files.readString(log));
            broker = ProcessHandle.of(Long.parseLong(pid)).orElseThrow();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void stop() {
        if (!isRunning()) return;
        broker.destroy();
        try {
            if (!guard.waitFor(STOP_S_MAX, TimeUnit.SECONDS)) kill();
        } catch (InterruptedException error) {
            kill();
            Thread.currentThread().interrupt();
        }
    }

    private void kill() {
        broker.destroyForcibly();
        guard.destroyForcibly();
    }
}
