import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;

import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's Parallel Consumer in the contest of bench/keys: the work of worker.py, told by the same environment.
 *
 * Everything that is not named here has its default; so commits are asynchronous, every five seconds.
 */
public final class ParallelKeys {
    private ParallelKeys() {}

    public static void main(String[] arguments) throws IOException {
        Map<String, String> told = System.getenv();
        long waitMs = Long.parseLong(told.get("BENCH_WAIT_MS"));
        FileChannel journal = FileChannel.open(Path.of(told.get("BENCH_JOURNAL")), CREATE, APPEND);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", told.get("BENCH_SERVERS"),
            "group.id", told.get("BENCH_GROUP"),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false);
        var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(Integer.parseInt(told.get("BENCH_AT_ONCE")))
            .consumer(consumer)
            .build();
        ParallelStreamProcessor<byte[], byte[]> processor =
            ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(told.get("BENCH_TOPIC")));
        Runtime.getRuntime().addShutdownHook(new Thread(processor::closeDrainFirst));
        processor.poll(context -> work(context.getSingleConsumerRecord().value(), waitMs, journal));
    }

    private static void work(byte[] value, long waitMs, FileChannel journal) {
        long beganNs = System.nanoTime();
        long number = Long.parseLong(new String(value, StandardCharsets.UTF_8));
        try {
            if (waitMs > 0) {
                Thread.sleep(waitMs);
            }
            ByteBuffer entry = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
            entry.putLong(number).putLong(beganNs).putLong(System.nanoTime()).flip();
            journal.write(entry);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
