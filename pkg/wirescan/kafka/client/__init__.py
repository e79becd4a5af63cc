"""A client of Kafka clusters, in three layers: operations, connections and drivers.

**Operations** hold all the logic. They use no socket and no clock. An operation is a generator:
it yields effects and is sent their results. effects.py defines the effects:

    Exchange(node, api, body, ...)      a request and its response. The result is an
                                        Answer(version, table), the body as kafka.body
    Begin(exchange), Finish(ticket)     the two halves of an exchange
    Together([operations])              operations that run concurrently. The result is a list of
                                        results or exceptions
    Wait(seconds), Now()                a pause, and the time of a monotonic clock
    Give(value)                         one of many results

The files of this layer:

    cluster.py          Cluster: the brokers and the leaders of partitions. `ask_leaders` asks the
                        leader of every partition and retries errors that may pass.
                        Patience.wait(error) pauses, or raises the error. Operations without
                        `ask_leaders` use `find_leader` or `find_leaders`, and after an error
                        `forget` the topic.
    offsets.py          list_offsets(cluster, times, isolation)
    fetch_ranges.py     fetch_once(cluster, offsets, question);
                        read_range(cluster, range, ...) gives FetchedBatches
    produce.py          produce(cluster, sets, acks, timeout_ms): one attempt at record sets
    send_records.py     send(cluster, producer, topic, columns, ...): retries until each record is
                        written once
    partitioners.py     the partition of each record; partitioner.pyx has the hashes of keys
    topic_batches.py    the records of topics as Arrow
    topic_ranges.py     the offset ranges of topics that are fetched
    fetch_bounds.py     resolve_ranges(...): the offset ranges that the arguments of `fetch` name
    decode.py           Decoding.make_part(answer): a Part, which holds tables
    prefetch.py         Parts: ranges of a topic, which threads read ahead of the caller

**Connection** (connection.py) is the state of one connection, without the socket.
send(api, version, body) returns bytes. get_buffer() and buffer_updated(count), or receive(data),
return Answers. `greet` is the first exchange on a connection: ApiVersions and the login (sasl.py).

**Drivers** run operations over connections. `Driver` (driver.py) is written as coroutines.
transports.py awaits them for AsyncClient (aio.py). sockets.py blocks inside them for Client
(blocking.py). Both clients are `Operations` (operations.py), with the attributes `cluster`
and `limits` and the method `run(operation)`. `run` of AsyncClient is awaited. A new operation needs
one function and one method in `Operations`.

Start with `operations.py`. The folder imports the folders below the protocol packages and the rest
of `wirescan.kafka`.
"""

from wirescan.frames.lazy import make_lazy_names

__all__ = [
    "AsyncClient",
    "Client",
    "Cluster",
    "Metadata",
    "Part",
    "Parts",
    "ProduceError",
    "Retries",
    "fetch",
]

# These modules need sockets, threads or asyncio, so they are imported on first use.
__getattr__, __dir__ = make_lazy_names(
    __name__,
    {
        "AsyncClient": "aio",
        "Client": "blocking",
        "Cluster": "cluster",
        "Metadata": "cluster",
        "Part": "decode",
        "Parts": "prefetch",
        "ProduceError": "send_records",
        "Retries": "cluster",
        "fetch": "blocking",
    },
)
