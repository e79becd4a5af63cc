"""Both sides of Liftbridge: Publisher and Subscriber have no sockets, Client runs them on nats-py.

Start with `publisher.py` and `subscriber.py`.

    publisher.py   Publisher: the publishing side
    subscriber.py  Subscriber: the subscribing side
    client.py      Client: both sides on a connection of nats-py
    subjects.py    subjects of a stream's partitions, and the partition of a key

Imports the folders below the protocol packages, and of `wirescan.liftbridge` the formats and
encoders.
"""
