// Decodes values of Kafka's metadata log with Kafka's own classes, and prints them as JSON.
//
// Argument: a file with a value in hexadecimal digits on each line. The output has a line for each
// value: its type, version and fields, or "rejected" and the error.

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

public class MetadataRecords {
    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            out.append(decode(HexFormat.of().parseHex(line))).append('\n');
        }
        System.out.print(out);
    }

    static String decode(byte[] value) {
        ApiMessageAndVersion record;
        try {
            ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(value));
            record = new MetadataRecordSerde().read(readable, value.length);
        } catch (RuntimeException error) {
            return "rejected: " + error.toString().replace('\n', ' ');
        }
        JsonNode fields = MetadataJsonConverters.writeJson(record.message(), record.version());
        ObjectNode node = new ObjectNode(JsonNodeFactory.instance);
        node.put("type", MetadataRecordType.fromId(record.message().apiKey()).name());
        node.put("version", record.version());
        node.set("data", fields);
        return node.toString();
    }
}
