"""Both sides of a Thrift connection, used from `wirescan.thrift`.

Start with `channel.py`.

    channel.py             ClientChannel and ServerChannel: conversations without sockets
    apache_transport.py    HeaderTransport: a transport for Apache Thrift's library
    persistent_headers.py  the state of a connection, which both use

Imports the folders below the protocol packages, and of `wirescan.thrift` the formats and encoders.
"""
