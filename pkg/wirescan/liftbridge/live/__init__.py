"""Both sides of Liftbridge: Publisher and Subscriber have no sockets, Client runs them on nats-py.

Start with `publisher.py` and `subscriber.py`; `client.py` has the connection.

Imports the folders below the protocol packages, and of `wirescan.liftbridge` the formats and
encoders.
"""
