"""TLS in captures: which connections have it, what they say of themselves, and their plain bytes.

Start with `tls_connection.py`, which follows one connection:

    tls_connection.py   TlsConnection: the handshake and the records of both sides
    tls_records.py      the headers of records, and how a stream of them is recognized
    tls_hello.py        what a client offers, and what a server chooses
    tls_keys.py         KeyLog: the secrets of a file, and those of a capture
    tls_ciphers.py      the cipher suites, and the keys that follow from secrets
    tls_plaintext.py    the decrypted bytes of a side, and the packets that they came in
    tls_constants.py    the numbers of TLS by their names

Two modules use them for all connections of a capture:

    tls_streams.py      DecryptingScanner: tables of pcap.streams with decrypted bytes
    tls_table.py        the table `pcap.tls`, with a row for each connection

The folder is not called `tls`, because `wirescan.pcap.tls` is a function.

Imports the folders below the protocol packages, and of `wirescan.pcap` the modules beside this
folder and `assembly`. Only `tls_ciphers.py` imports `cryptography`, on first use.
"""
