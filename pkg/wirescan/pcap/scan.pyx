# cython: boundscheck=False, wraparound=False
"""Scans captures of packets: the blocks of a file, and the packets in them.

`formats.py` calls these functions. A pcap file, in the byte order of its magic number:

    file header     magic (a1b2c3d4: microseconds, a1b23c4d: nanoseconds), version 2.4, 8 bytes,
                    snap length, link type
    record          seconds, fraction of a second, captured size, size on the wire, bytes

A pcapng file consists of blocks. Each section has the byte order of its header:

    block           type, size, fields, options, size again
    section header  type 0a0d0d0a, byte-order magic 1a2b3c4d
    interface       link type, snap length, options: resolution and offset of times
    packet          enhanced: interface, time, captured size, size on the wire, bytes, options
                    simple: size on the wire, bytes
                    old: as enhanced, with an interface of 16 bits

A packet has these layers. A header that the capture does not have is no fault:

    link            Ethernet with VLAN tags, Linux cooked v1 and v2, loopback, none
    IP              IPv4, IPv6 with its extension headers; fragments.pxd puts fragments together
    transport       TCP, UDP

Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng; RFC 791, RFC 8200, RFC 9293, RFC 768.
"""
import numpy as np

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from wirescan.core cimport (
    BAD_LENGTH, Fault, LIMIT, OK, Parents, Rows, ScanState, add_each, begin_row, int32_t, is_inside,
    open_rows, place, scan_buffer, scan_frames, uint32_t, uint8_t)
from wirescan.core.loop import flatten
from wirescan.pcap.block cimport Capture, Interface, probe_any_block, read_any_block
from wirescan.pcap.packet cimport read_packet
from wirescan.pcap.rows cimport Block, PACKET as PACKET_BLOCK, Packet

cdef Block _block
cdef Packet _packet
BLOCK = flatten(np.asarray(<Block[:1]>&_block).dtype)
PACKET = flatten(np.asarray(<Packet[:1]>&_packet).dtype)


cdef class CaptureState:
    """What the blocks of a capture so far say of the next ones: byte order and interfaces."""
    cdef Capture capture

    def __cinit__(self):
        memset(&self.capture, 0, sizeof(Capture))

    def __dealloc__(self):
        free(self.capture.interfaces)

    def copy(self):
        """Return a copy, which later blocks of this capture do not change."""
        cdef CaptureState state = CaptureState()
        cdef size_t size = self.capture.count * sizeof(Interface)
        cdef void* memory = malloc(size + 1)
        if memory is NULL:
            raise MemoryError("no memory for the interfaces of a capture")
        if size:
            memcpy(memory, self.capture.interfaces, size)
        state.capture = self.capture
        state.capture.interfaces = <Interface*>memory
        state.capture.capacity = state.capture.count
        return state


cdef Fault run_blocks(ScanState* state, Rows* rows) noexcept nogil:
    cdef Capture* capture = <Capture*>state.memory
    capture.more = state.more
    return scan_buffer(state, rows, sizeof(Block), read_any_block, probe_any_block)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype BLOCK, bad, fault, position) of one buffer.

    check is accepted for consistency and ignored: blocks have no checksum. `resume` keeps a
    CaptureState. See `core.loop.scan_frames` for the other arguments.
    """
    cdef CaptureState state = None if resume is None else resume.memory
    if state is None:
        state = CaptureState()
        if resume is not None:
            resume.memory = state
    return scan_frames(buffer, BLOCK, run_blocks, resync, more, limits, into, resume,
                       &state.capture)


cdef inline Fault add_packet(Rows* rows, const void* outer, const uint8_t* start, int32_t parent,
                             const void* context) noexcept nogil:
    # The AddRows of packets: see core/loop.pxd. One bad row covers a bad block of a packet.
    cdef const Block* block = <const Block*>outer
    cdef const uint8_t* base = start - block.head.start
    cdef Packet* row
    cdef Fault fault = <Fault>block.head.fault
    if block.head.kind != PACKET_BLOCK and not fault:
        return OK
    row = <Packet*>begin_row(rows, sizeof(Packet))
    if row is NULL:
        return LIMIT
    if fault:
        row.source_address_size = row.destination_address_size = row.payload_size = -1
        place(&row.head, base, start, start + block.head.size, parent, block.head.buffer,
              <uint8_t>fault)
        rows.count += 1
        rows.bad += 1
        return OK
    if block.data_size < 0 or not is_inside(&block.head, block.data_at, block.data_size):
        return BAD_LENGTH
    row.time = block.time
    row.length = block.length
    row.interface = block.interface
    row.link = block.link
    fault = read_packet(row, start + block.data_at, <uint32_t>block.data_size, context is not NULL)
    place(&row.head, base, start + block.data_at, start + block.data_at + block.data_size, parent,
          block.head.buffer, <uint8_t>fault)
    rows.count += 1
    rows.bad += fault != OK
    return OK


cdef Fault run_packets(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_packet)


def open_packets(blocks, buffers, limits, verify=False):
    """Return (rows of dtype PACKET, bad, fault) for the packets in blocks.

    blocks: array of dtype BLOCK. verify: verify the checksums of IPv4, TCP and UDP.
    Raises TypeError for rows of another dtype, ValueError where a row points outside its buffer,
    MemoryError.
    """
    cdef uint8_t flag = 1
    if blocks.dtype != BLOCK:
        raise TypeError("open_packets takes rows of pcap.blocks")
    counts = (blocks["kind"] == PACKET_BLOCK) | (blocks["fault"] != 0)
    return open_rows(blocks, buffers, PACKET, len(blocks), run_packets, &flag if verify else NULL,
                     limits, counts.astype(np.int64))
