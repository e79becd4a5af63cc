"""What follows TCP connections through the packets, and puts the bytes of each side in order.

Start with `assembler.pyx`: its docstring says what becomes of the bytes of a packet. The others are
parts of it, which are compiled into it:

    assembler.pyx           Assembler: packets in, connections and bytes in order out
    tcp_connection.pxd      what is known of each connection and of its two sides
    connection_table.pxd    finds the connection of a packet, and follows how it begins and ends
    roles.pxd               who is the client where the capture does not have the SYN
    fragments.pxd           puts the fragments of IP datagrams together
    byte_nodes.pxd          the bytes of a side that are ready, and those that came too early
    missing_bytes.pxd       how long bytes wait for missing ones
    connection_ages.pxd     which connections are released, because they ended or are idle
    capture_clock.pxd       how much time passes, although packets may have false times
    number_list.pxd         a list of numbers that grows

`pcap/flow_tables.py` makes tables of the results.

Imports `wirescan.core`, and of `wirescan.pcap` the kernels and rows beside this folder.
"""
