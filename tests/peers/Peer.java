// Kafka's Java library as a peer, compiled and run with its class path. Records travel in the
// form that canonical.py describes; CONFIG is a file of the client's properties.
//
//   Peer produce CONFIG TOPIC FILE OUTCOMES  sends the records of FILE; their offsets are not used. With OUTCOMES
//                                          as many transactions: c to commit, a to abort
//   Peer consume CONFIG TOPIC COUNT OUT    writes to OUT the first COUNT records of partition 0, or where CONFIG
//                                          names a group, of what the group assigns; and commits
//   Peer read OUT FILE...                  writes to OUT what Kafka's reader finds in FILE..., checksums too
//   Peer encode DIRECTORY FILE             writes DIRECTORY/MAGIC-CODEC, for all of both, with Kafka's writer

import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Peer {
    record Row(long offset, long timestamp, byte[] key, byte[] value, Header[] headers) { }

    public static void main(String[] given) throws Exception {
        switch (given[0]) {
            case "produce" -> produce(config(given[1]), given[2], rows(Path.of(given[3])), given[4]);
            case "consume" -> consume(config(given[1]), given[2], Integer.parseInt(given[3]), Path.of(given[4]));
            case "read" -> read(Path.of(given[1]), Arrays.asList(given).subList(2, given.length));
            case "encode" -> encode(Path.of(given[1]), rows(Path.of(given[2])));
            default -> throw new IllegalArgumentException(given[0]);
        }
    }

    static Properties config(String file) throws IOException {
        var config = new Properties();
        try (var from = Files.newBufferedReader(Path.of(file))) {
            config.load(from);
        }
        return config;
    }

    static void produce(Properties config, String topic, List<Row> rows, String outcomes) throws Exception {
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(config, bytes, bytes)) {
            if (outcomes.isEmpty()) {
                send(producer, topic, rows);
                return;
            }
            producer.initTransactions();
            int share = rows.size() / outcomes.length();
            for (int turn = 0; turn < outcomes.length(); turn++) {
                producer.beginTransaction();
                send(producer, topic, rows.subList(turn * share, (turn + 1) * share));
                if (outcomes.charAt(turn) == 'c')
                    producer.commitTransaction();
                else
                    producer.abortTransaction();
            }
        }
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, List<Row> rows) throws Exception {
        var sent = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
        for (Row row : rows)
            sent.add(producer.send(new ProducerRecord<>(topic, 0, row.timestamp, row.key, row.value,
                Arrays.asList(row.headers))));
        producer.flush();
        for (var one : sent)
            one.get();
    }

    static void consume(Properties config, String topic, int count, Path out) throws Exception {
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes);
                var to = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(out)))) {
            boolean inGroup = config.containsKey("group.id");
            if (inGroup) {
                consumer.subscribe(List.of(topic));
            } else {
                var partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
            }
            long until = System.nanoTime() + 60_000_000_000L;
            for (int read = 0; read < count && System.nanoTime() < until; )
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    write(to, record.offset(), record.timestamp(), record.key(), record.value(),
                        record.headers().toArray());
                    read++;
                }
            if (inGroup)
                consumer.commitSync();
        }
    }

    static void read(Path out, List<String> files) throws Exception {
        try (var to = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(out)))) {
            for (String file : files) {
                var data = ByteBuffer.wrap(Files.readAllBytes(Path.of(file)));
                for (RecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                    batch.ensureValid();
                    for (var record : batch)
                        write(to, record.offset(), record.timestamp(), content(record.key()),
                            content(record.value()), record.headers());
                }
            }
        }
    }

    static void encode(Path directory, List<Row> rows) throws Exception {
        for (byte magic = 0; magic <= 2; magic++)
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
                if (magic == 2 || !codec.equals("zstd"))
                    Files.write(directory.resolve(magic + "-" + codec), encode(magic, codec, rows));
    }

    static byte[] encode(byte magic, String codec, List<Row> rows) {
        var compression = Compression.of(CompressionType.forName(codec)).build();
        var builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), magic, compression,
            TimestampType.CREATE_TIME, rows.get(0).offset);
        for (Row row : rows)
            builder.appendWithOffset(row.offset, magic == 0 ? -1 : row.timestamp, row.key, row.value,
                magic == 2 ? row.headers : new Header[0]);
        return content(builder.build().buffer());
    }

    static List<Row> rows(Path file) throws IOException {
        var rows = new ArrayList<Row>();
        try (var from = new DataInputStream(new BufferedInputStream(Files.newInputStream(file)))) {
            while (true) {
                long offset;
                try {
                    offset = from.readLong();
                } catch (EOFException end) {
                    return rows;
                }
                long timestamp = from.readLong();
                byte[] key = content(from), value = content(from);
                var headers = new Header[from.readInt()];
                for (int i = 0; i < headers.length; i++) {
                    var name = new String(content(from), StandardCharsets.UTF_8);
                    headers[i] = new RecordHeader(name, content(from));
                }
                rows.add(new Row(offset, timestamp, key, value, headers));
            }
        }
    }

    static byte[] content(DataInputStream from) throws IOException {
        int size = from.readInt();
        return size < 0 ? null : from.readNBytes(size);
    }

    static byte[] content(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        var bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static void write(DataOutputStream to, long offset, long timestamp, byte[] key, byte[] value, Header[] headers)
            throws IOException {
        to.writeLong(offset);
        to.writeLong(timestamp);
        write(to, key);
        write(to, value);
        to.writeInt(headers.length);
        for (Header header : headers) {
            write(to, header.key().getBytes(StandardCharsets.UTF_8));
            write(to, header.value());
        }
    }

    static void write(DataOutputStream to, byte[] content) throws IOException {
        to.writeInt(content == null ? -1 : content.length);
        if (content != null)
            to.write(content);
    }
}
