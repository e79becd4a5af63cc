// Reads a topic with Java's KafkaConsumer; run as a single source file on Kafka's class path.
//
//   Consume ADDRESS TOPIC PARTITIONS RECORDS     for every line on standard input one pass from the beginning, until so
//                                                many records are there; prints the nanoseconds that the pass took

import java.io.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Consume {
    static long sink;       // what is read must matter, or the compiler leaves it out

    public static void main(String[] given) throws IOException {
        var settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", "10000");
        settings.put("max.partition.fetch.bytes", String.valueOf(8 << 20));
        var bytes = new ByteArrayDeserializer();
        var partitions = new ArrayList<TopicPartition>();
        for (int number = 0; number < Integer.parseInt(given[2]); number++)
            partitions.add(new TopicPartition(given[1], number));
        long records = Long.parseLong(given[3]);
        var lines = new BufferedReader(new InputStreamReader(System.in));
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(partitions);
            while (lines.readLine() != null) {
                long start = System.nanoTime();
                consumer.seekToBeginning(partitions);
                for (long count = 0, sum = 0; count < records; sink += sum)
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(30))) {
                        sum += record.offset() ^ record.timestamp();
                        sum += record.key().length + record.value().length;
                        count++;
                    }
                System.out.println(System.nanoTime() - start);
            }
        }
        System.err.println(sink);
    }
}
