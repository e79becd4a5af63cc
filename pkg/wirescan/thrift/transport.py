"""The old name of the module of `wirescan.thrift.HeaderTransport`, for programs that import it."""

from wirescan.thrift.live.apache_transport import (
    HeaderTransport,
    HeaderTransportFactory,
    TransportError,
)

__all__ = ["HeaderTransport", "HeaderTransportFactory", "TransportError"]
