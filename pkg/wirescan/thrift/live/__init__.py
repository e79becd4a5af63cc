"""Both sides of a Thrift connection, used from `wirescan.thrift`.

Start with `channel.py`, which has conversations without sockets. `apache_transport.py` has a
transport for Apache Thrift's library. `persistent_headers.py` has the parts that both use.

Imports the folders below the protocol packages, and of `wirescan.thrift` the formats and encoders.
"""
