import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import java.util.zip.CRC32;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;

/**
 * Prints the bytes that Apache Kafka's own classes make of messages; tools/kafka_bytes.py drives it.
 *
 * Reads lines "name class lowest highest", prints "name version fill hex". A message is filled in three ways: "full"
 * (every field set, two elements an array), "bare" (null and empty wherever it may be, no tagged fields) and "default"
 * (nothing set). Values come from field names, so that tests/unit/wire/test_codec.py can fill ours alike.
 */
public class KafkaBytes {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            Class<?> kind = Class.forName(words[1]);
            Schema[] schemas = (Schema[]) kind.getField("SCHEMAS").get(null);
            for (short version = Short.parseShort(words[2]); version <= Short.parseShort(words[3]); version++) {
                for (String fill : new String[] {"full", "bare", "default"}) {
                    Message message = (Message) kind.getConstructor().newInstance();
                    if (!fill.equals("default")) {
                        read(message, schemas[version], version, fill.equals("full"));
                    }
                    System.out.println(words[0] + " " + version + " " + fill + " " + hex(message, version));
                }
            }
        }
    }

    static void read(Message message, Schema schema, short version, boolean isFull) {
        Struct struct = struct(schema, isFull);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
        schema.write(buffer, struct);
        buffer.flip();
        message.read(new ByteBufferAccessor(buffer), version);
    }

    static String hex(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array(), 0, buffer.position());
    }

    static Struct struct(Schema schema, boolean isFull) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                NavigableMap<Integer, Object> tags = new TreeMap<>();
                if (isFull) {
                    tagged.fields().forEach((tag, each) -> tags.put(tag, value(each.name, each.type, true)));
                }
                struct.set(field, tags);
            } else {
                struct.set(field, value(field.def.name, field.def.type, isFull));
            }
        }
        return struct;
    }

    static Object value(String name, Type type, boolean isFull) {
        if (type.isNullable() && !isFull) {
            return null;
        }
        Optional<Type> element = type.arrayElementType();
        if (element.isPresent()) {
            return isFull
                ? new Object[] {value(name, element.get(), true), value(name, element.get(), true)}
                : new Object[0];
        }
        return type instanceof Schema schema ? struct(schema, isFull) : scalar(name, type);
    }

    static Object scalar(String name, Type type) {
        byte[] text = name.getBytes(StandardCharsets.UTF_8);
        CRC32 crc = new CRC32();
        crc.update(text);
        long number = crc.getValue();
        String kind = type.toString().replace("COMPACT_", "").replace("NULLABLE_", "");
        return switch (kind) {
            case "BOOLEAN" -> true;
            case "INT8" -> (byte) (number & 0x7f);
            case "INT16" -> (short) (number & 0x7fff);
            case "UINT16" -> (int) (number & 0xffff);
            case "INT32" -> (int) (number & 0x7fffffff);
            case "UINT32", "UNSIGNED_INT32" -> number;
            case "INT64" -> number << 20;
            case "FLOAT64" -> number / 8.0;
            case "UUID" -> new Uuid(number, number << 1);
            case "STRING" -> name;
            case "BYTES" -> ByteBuffer.wrap(text);
            case "RECORDS" -> MemoryRecords.readableRecords(ByteBuffer.wrap(text));
            default -> throw new IllegalStateException("a new type: " + type);
        };
    }
}
