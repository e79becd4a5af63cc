"""Live conversations in Lumberjack.

Start with `receiver.py` and `sender.py`, which implement both sides without sockets. `server.py`
and `client.py` run them over sockets.

Imports the folders below the protocol packages, and of `wirescan.lumberjack` the formats and
encoders.
"""
