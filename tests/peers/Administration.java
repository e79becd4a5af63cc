// Kafka's Java clients, for the connections that administration.py describes.
//
//   Administration commit ADDRESS TOPIC VALUE    commits an offset in a transaction with one record
//   Administration create ADDRESS TOPIC PARTITIONS KEY=VALUE...
//                                                creates a topic with settings, and reads its settings
//                                                with synonyms and documentation

import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Administration {
    public static void main(String[] given) throws Exception {
        if (given[0].equals("commit"))
            commit(given[1], given[2], given[3].getBytes());
        else
            create(given[1], given[2], Integer.parseInt(given[3]),
                Arrays.asList(given).subList(4, given.length));
    }

    static void commit(String address, String topic, byte[] value) throws Exception {
        Map<String, Object> consuming = Map.of("bootstrap.servers", address,
            "group.id", topic + "-transaction", "enable.auto.commit", "false");
        Map<String, Object> producing = Map.of("bootstrap.servers", address,
            "transactional.id", topic + "-offsets");
        var read = new ByteArrayDeserializer();
        var write = new ByteArraySerializer();
        try (var consumer = new KafkaConsumer<>(consuming, read, read);
                var producer = new KafkaProducer<>(producing, write, write)) {
            consumer.subscribe(List.of(topic));
            while (consumer.assignment().isEmpty())
                consumer.poll(Duration.ofSeconds(1));
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)), consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    static void create(String address, String topic, int partitions, List<String> settings) throws Exception {
        var configs = new HashMap<String, String>();
        for (String setting : settings)
            configs.put(setting.split("=")[0], setting.split("=")[1]);
        try (var admin = Admin.create(Map.of("bootstrap.servers", (Object) address))) {
            var made = new NewTopic(topic, partitions, (short) 1).configs(configs);
            admin.createTopics(List.of(made)).all().get();
            var resources = List.of(new ConfigResource(ConfigResource.Type.TOPIC, topic));
            var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
            admin.describeConfigs(resources, options).all().get();
        }
    }
}
