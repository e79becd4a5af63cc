"""Live conversations in Lumberjack.

Start with `receiver.py` and `sender.py`, which implement both sides without sockets.

    receiver.py             the reading side, without the socket
    sender.py               the writing side, without the socket
    server.py               Server, which receives windows of many connections
    server_connection.py    one connection of the server
    client.py               Client, which sends events over a socket
    strictness.py           frames that some readers accept and others refuse
    conversation_errors.py  why a conversation ends: ConversationError and Reason

Imports the folders below the protocol packages, and of `wirescan.lumberjack` the formats and
encoders.
"""
