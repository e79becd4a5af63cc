"""The transport for Apache Thrift's library, under the module name that users import."""

from wirescan.thrift.live.apache_transport import (
    HeaderTransport,
    HeaderTransportFactory,
    TransportError,
)

__all__ = ["HeaderTransport", "HeaderTransportFactory", "TransportError"]
