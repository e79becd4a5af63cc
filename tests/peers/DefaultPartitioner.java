// DefaultPartitioner CONFIG TOPIC KEYS
//
// Sends a record without a value for each key, with the partitioner that Java's producer has by default, and prints the
// partition of each. CONFIG is a file of the client's properties; KEYS has a key in hexadecimal on each line.

import java.io.FileReader;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class DefaultPartitioner {
    public static void main(String[] given) throws Exception {
        var config = new Properties();
        try (var from = new FileReader(given[0])) {
            config.load(from);
        }
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(config, bytes, bytes)) {
            for (String line : Files.readAllLines(Path.of(given[2]))) {
                var key = HexFormat.of().parseHex(line);
                var record = new ProducerRecord<byte[], byte[]>(given[1], key, null);
                System.out.println(producer.send(record).get().partition());
            }
        }
    }
}
