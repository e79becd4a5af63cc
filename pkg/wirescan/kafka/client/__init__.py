"""A client of Kafka clusters, in three layers.

**Operations** (no socket, no clock; effects.py says what they may ask for) hold all the logic. They are generators,
which yield effects and are sent the results:

    Exchange(node, api, body, ...)      a request and its response: an Answer(version, table), the body as kafka.body
    Begin(exchange), Finish(ticket)     its two halves
    Together([operations])              side by side: a list of results or exceptions
    Wait(seconds), Now()
    Give(value)                         one of many results

    cluster.py      Cluster: metadata(topics), leader(topic, partition), forget(topic), patience(), and
                    each({(topic, partition): item}, ask): asks the leader of each partition, again after errors that
                    may pass; ask(node, {(topic, partition): (item, Leader)}) is an operation, whose result is
                    {(topic, partition): result or exception}. Patience.wait(error): pauses, or raises it.
    offsets.py      list_offsets(cluster, wanted, isolation)
    fetching.py     fetch_once(cluster, wanted, question); read_range(cluster, range, ...) gives Pieces
    produce.py      produce(cluster, sets, acks, timeout_ms): one attempt at record sets
    send.py         send(cluster, producer, topic, columns, ...): each record once, whatever fails; partitioners.py
    parts.py        plan(...): the ranges that were asked for; Decoding.part(piece): a Part, with tables

**Connection** (connection.py; no socket) is one connection: send(api, version, body) -> bytes; room() and
filled(count), or receive(data), -> Answers. `greet` is what is said first: ApiVersions and the login (sasl.py).

**Drivers** run operations over connections: sockets.py for Client (blocking.py), transports.py for AsyncClient
(aio.py). Both clients are `Operations` (operations.py), which have `cluster`, `limits` and `run(operation)`;
AsyncClient's `run` is awaited. So a new operation is one function, and one line in `Operations`.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

PLACES = {"Client": "blocking", "AsyncClient": "aio", "Cluster": "cluster", "Retries": "cluster", "Metadata": "cluster",
          "Part": "parts", "Parts": "reading", "ProduceError": "send", "fetch": "blocking"}
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    # Sockets, threads and asyncio are imported by who wants a client.
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
