// Reads a topic with librdkafka.
//
//   consume ADDRESS TOPIC PARTITIONS RECORDS
//
// For every line on standard input it makes one pass from the beginning, until it has RECORDS records. It prints the
// number of records, the bytes of keys and of values, the largest offset, and the nanoseconds of the pass. The client
// stays connected between passes, and verifies checksums.
//
// It declares what it uses of rdkafka.h, so that it links to the library of confluent-kafka's wheel, which has no
// header. These declarations are part of librdkafka's stable ABI.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;

typedef struct {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

enum { RD_KAFKA_CONSUMER = 1, RD_KAFKA_CONF_OK = 0 };

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *error, size_t error_size);
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *error, size_t error_size);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size);
void *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition);
int rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *, const char *topic, int32_t partition,
                                             int64_t offset);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int timeout_ms, rd_kafka_message_t **, size_t size);
int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *, int *type);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int err);
int rd_kafka_consumer_close(rd_kafka_t *);
void rd_kafka_destroy(rd_kafka_t *);

#define AT_ONCE 10000   // messages per call
#define PATIENCE 30000  // milliseconds per call

struct totals {
    int64_t records, key_bytes, value_bytes, last_offset, timestamps;
};

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char error[256];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK)
        fail(error);
}

static rd_kafka_t *connect_to(const char *address)
{
    char error[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", address);
    set(conf, "group.id", "bench-c");
    set(conf, "enable.auto.commit", "false");
    set(conf, "check.crcs", "true");
    set(conf, "fetch.wait.max.ms", "10");  // the last fetch of a pass waits so long, and the next pass for it
    set(conf, "max.partition.fetch.bytes", "8388608");
    set(conf, "queued.min.messages", "1000000");
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (!client)
        fail(error);
    rd_kafka_poll_set_consumer(client);
    return client;
}

// Reads messages until there are as many records. An error or a long wait ends the program.
static struct totals consume(rd_kafka_queue_t *queue, int64_t records)
{
    static rd_kafka_message_t *messages[AT_ONCE];
    struct totals sums = {0, 0, 0, -1, 0};
    while (sums.records < records) {
        // A call returns when it has all messages that it asked for, so it must not ask for more than there are.
        int64_t missing = records - sums.records;
        size_t wanted = missing < AT_ONCE ? (size_t)missing : AT_ONCE;
        ssize_t count = rd_kafka_consume_batch_queue(queue, PATIENCE, messages, wanted);
        if (count <= 0)
            fail("no messages within the time limit");
        for (ssize_t i = 0; i < count; i++) {
            rd_kafka_message_t *message = messages[i];
            if (message->err)
                fail(rd_kafka_err2str(message->err));
            sums.records++;
            sums.key_bytes += message->key_len;
            sums.value_bytes += message->len;
            if (message->offset > sums.last_offset)
                sums.last_offset = message->offset;
            sums.timestamps += rd_kafka_message_timestamp(message, NULL);
            rd_kafka_message_destroy(message);
        }
    }
    return sums;
}

int main(int count, char **given)
{
    if (count != 5)
        fail("consume ADDRESS TOPIC PARTITIONS RECORDS");
    int64_t records = atoll(given[4]);
    int64_t timestamps = 0;  // printed at the end, so that the compiler cannot drop the reads
    rd_kafka_t *client = connect_to(given[1]);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    rd_kafka_topic_partition_list_t *beginning = rd_kafka_topic_partition_list_new(atoi(given[3]));
    for (int32_t partition = 0; partition < atoi(given[3]); partition++) {
        rd_kafka_topic_partition_list_add(beginning, given[2], partition);
        rd_kafka_topic_partition_list_set_offset(beginning, given[2], partition, 0);
    }
    for (int line; (line = getchar()) != EOF;) {
        if (line != '\n')
            continue;
        struct timespec start, stop;
        clock_gettime(CLOCK_MONOTONIC, &start);
        if (rd_kafka_assign(client, beginning))
            fail("the partitions cannot be assigned");
        struct totals sums = consume(queue, records);
        clock_gettime(CLOCK_MONOTONIC, &stop);
        int64_t spent = (stop.tv_sec - start.tv_sec) * 1000000000LL + stop.tv_nsec - start.tv_nsec;
        printf("%lld %lld %lld %lld %lld\n", (long long)sums.records, (long long)sums.key_bytes,
               (long long)sums.value_bytes, (long long)sums.last_offset, (long long)spent);
        fflush(stdout);
        timestamps += sums.timestamps;
    }
    fprintf(stderr, "%lld\n", (long long)timestamps);
    rd_kafka_topic_partition_list_destroy(beginning);
    rd_kafka_queue_destroy(queue);
    rd_kafka_consumer_close(client);
    rd_kafka_destroy(client);
    return 0;
}
