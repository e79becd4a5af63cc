# Puts the bytes of each direction in order: lists of nodes in an arena. assembler.pyx uses it.
#
# A node is the new bytes of one packet. Each direction has two lists of them: `ready` has the bytes
# that follow each other, and `held` has bytes that came too early, by position.
#
# All work is linear. The walk to the place of a held node is charged to a budget that each packet
# extends. Beyond it a packet counts as lost. Beyond the limit on held bytes of a direction, the
# bytes that are missing before them are lost.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from wirescan.core.grow_memory cimport grow_memory
from wirescan.core cimport prefetch
from wirescan.pcap.block cimport CACHE_LINE
from wirescan.pcap.assembly.number_list cimport NumberList, push
from wirescan.pcap.rows cimport Packet
from wirescan.pcap.assembly.tcp_connection cimport NONE, Node, Side

cdef enum:
    STEPS_PER_PACKET = 64       # steps to the places of held nodes that each packet allows
    FREE_STEPS = 1 << 20
    MOST_NODES = 0x7FFFFFF0
    PREFETCH_NODES = 8          # nodes between the one that is copied and the prefetched one
    NODE_COST = 64              # bytes that a node with a copy takes besides those of the copy

cdef struct NodeArena:
    Node* at
    int32_t count
    int32_t capacity
    int32_t free_node           # first node of the list of free ones
    NumberList borrowed         # nodes whose bytes are in the caller's buffers
    uint64_t steps
    uint64_t allowed_steps
    uint64_t held_limit         # bytes out of order that one direction may hold
    uint64_t owned_bytes        # of the nodes whose bytes are copies
    int64_t packet              # number of the packet that is followed
    bint last_wins              # where held bytes overlap
    bint out_of_memory


cdef inline void free_arena(NodeArena* nodes) noexcept nogil:
    cdef int32_t i
    for i in range(nodes.count):
        free(nodes.at[i].owned)
    free(nodes.at)
    free(nodes.borrowed.at)


cdef inline bint has_room(const NodeArena* nodes, const Side* side, uint64_t stop) noexcept nogil:
    # Return whether a direction may hold more bytes, up to a position.
    cdef const Node* last
    if side.held == NONE:
        return True
    last = &nodes.at[side.held_last]
    return (max(stop, last.position + last.size) - nodes.at[side.held].position
            <= nodes.held_limit)


cdef inline void prefetch_node(const NodeArena* nodes, int32_t i) noexcept nogil:
    # Prefetch a node, which is in two cache lines. Nodes that follow each other are anywhere.
    prefetch(<const uint8_t*>&nodes.at[i])
    prefetch(<const uint8_t*>&nodes.at[i] + CACHE_LINE)


cdef inline int32_t make_node(NodeArena* nodes, int64_t time, int64_t number,
                              const uint8_t* data, uint64_t position,
                              uint32_t size) noexcept nogil:
    # Return the number of a new node; NONE for no memory. time, number: those of the packet.
    cdef int32_t i = nodes.free_node
    cdef void* memory
    cdef int64_t capacity
    if i != NONE:
        nodes.free_node = nodes.at[i].next
        if nodes.free_node != NONE:
            prefetch_node(nodes, nodes.free_node)
    else:
        if nodes.count == nodes.capacity:
            capacity = <int64_t>nodes.capacity + nodes.capacity // 2 + 256
            memory = (grow_memory(nodes.at, capacity * sizeof(Node))
                      if capacity < MOST_NODES else NULL)
            if memory is NULL:
                nodes.out_of_memory = True
                return NONE
            nodes.at = <Node*>memory
            nodes.capacity = <int32_t>capacity
        i = nodes.count
        nodes.count += 1
    nodes.at[i] = Node(data, NULL, position, time, number, 0, 0, 0, size, NONE)
    if not push(&nodes.borrowed, i):
        nodes.out_of_memory = True
    return i


cdef inline void link_ready(NodeArena* nodes, Side* side, int32_t i) noexcept nogil:
    # Append a node to the list `ready`.
    if side.ready == NONE:
        side.ready = i
    else:
        nodes.at[side.ready_last].next = i
    side.ready_last = i
    side.ready_bytes += nodes.at[i].size


cdef inline void append(NodeArena* nodes, Side* side, int32_t i) noexcept nogil:
    # Append a node to the bytes in order.
    cdef Node* node
    if i == NONE:
        return
    node = &nodes.at[i]
    node.next = NONE
    node.ready = nodes.packet
    node.order = node.packet if node.packet > side.expired else nodes.packet
    node.order_of_all = node.packet if node.packet > side.expired_of_all else nodes.packet
    link_ready(nodes, side, i)
    side.next_sequence += <uint32_t>(node.position + node.size - side.position)
    side.position = node.position + node.size


cdef inline uint64_t hold(NodeArena* nodes, Side* side, const Packet* packet, int64_t number,
                          const uint8_t* data, uint64_t position, uint64_t size) noexcept nogil:
    # Add bytes to the held ones, by position. Bytes that are held already stay, or with `last_wins`
    # are replaced. Return how many bytes are new.
    cdef int32_t before = NONE, i = side.held, new
    cdef uint64_t stop = position + size, end, added = 0
    cdef Node* node
    if side.held != NONE:
        node = &nodes.at[side.held_last]
        if node.position + node.size <= position:
            # Most bytes come after all held ones.
            before = side.held_last
            i = NONE
    while position < stop:
        while i != NONE and nodes.at[i].position + nodes.at[i].size <= position:
            nodes.steps += 1
            before = i
            i = nodes.at[i].next
        if i == NONE or nodes.at[i].position >= stop:
            end = stop
        elif nodes.at[i].position > position:
            end = nodes.at[i].position
        else:
            # Both have these bytes.
            end = min(stop, nodes.at[i].position + nodes.at[i].size)
            if nodes.last_wins:
                replace(nodes, i, data, position, end)
            side.repeated += end - position
            data += end - position
            position = end
            continue
        new = make_node(nodes, packet.time, number, data, position, <uint32_t>(end - position))
        if new == NONE:
            return added
        insert(nodes, side, before, new)
        before = new
        added += end - position
        data += end - position
        position = end
    return added


cdef inline void replace(NodeArena* nodes, int32_t i, const uint8_t* data, uint64_t position,
                         uint64_t stop) noexcept nogil:
    # Replace bytes of a held node by those of a later packet.
    cdef Node* node = &nodes.at[i]
    cdef char* copy = <char*>malloc(node.size)
    if copy is NULL:
        nodes.out_of_memory = True
        return
    memcpy(copy, node.data, node.size)
    memcpy(copy + (position - node.position), data, stop - position)
    if node.owned is NULL:
        nodes.owned_bytes += node.size + NODE_COST
    free(node.owned)
    node.owned = copy
    node.data = <const uint8_t*>copy


cdef inline void insert(NodeArena* nodes, Side* side, int32_t before, int32_t i) noexcept nogil:
    # Insert a node after another one, or as the first one, into the held nodes.
    if before == NONE:
        nodes.at[i].next = side.held
        side.held = i
    else:
        nodes.at[i].next = nodes.at[before].next
        nodes.at[before].next = i
    if nodes.at[i].next == NONE:
        side.held_last = i


cdef inline bint move_held(NodeArena* nodes, Side* side) noexcept nogil:
    # Move held bytes that follow the bytes in order. Return whether there were any.
    cdef bint is_moved = False
    cdef int32_t i
    while side.held != NONE and nodes.at[side.held].position == side.position:
        i = side.held
        side.held = nodes.at[i].next
        if side.held == NONE:
            side.held_last = NONE
        append(nodes, side, i)
        is_moved = True
    return is_moved


cdef inline bint give_up_missing(NodeArena* nodes, Side* side,
                                 uint64_t acknowledged) noexcept nogil:
    # Give up the bytes that are missing before held bytes which the receiver has. Return whether
    # there are new bytes in order.
    cdef bint is_moved = False
    while side.held != NONE and nodes.at[side.held].position < acknowledged:
        side.lost += nodes.at[side.held].position - side.position
        side.next_sequence += <uint32_t>(nodes.at[side.held].position - side.position)
        side.position = nodes.at[side.held].position
        is_moved |= move_held(nodes, side)
    return is_moved


cdef inline void give_up_tail(Side* side, uint64_t stop) noexcept nogil:
    # Give up the bytes up to a position of a direction that holds none.
    side.lost += stop - side.position
    side.next_sequence += <uint32_t>(stop - side.position)
    side.position = stop


cdef inline bint ends_with_gap(const NodeArena* nodes, const Side* side) noexcept nogil:
    # Return whether lost bytes are the last ones of a direction.
    cdef const Node* last
    if side.ready == NONE:
        return side.position > side.given
    last = &nodes.at[side.ready_last]
    return side.position > last.position + last.size


cdef inline bint is_end_mark(const Side* side, const Node* node) noexcept nogil:
    # Return whether a ready node is that of `append_end_mark`. Other ready nodes end at
    # `side.position` or before it, so only the mark begins there.
    return node.position == side.position


cdef inline void append_end_mark(NodeArena* nodes, Side* side, const uint8_t* data, int64_t time,
                                 int64_t number) noexcept nogil:
    # Append a node of one byte, which is in no row. The row of the lost bytes before it has its
    # place among the bytes of the streams, and so its time and the number of its packet.
    cdef Node* node
    cdef int32_t i = make_node(nodes, time, number, data, side.position, 1)
    if i == NONE:
        return
    node = &nodes.at[i]
    node.ready = node.order = node.order_of_all = number
    link_ready(nodes, side, i)


cdef inline void drop(NodeArena* nodes, Side* side, uint64_t size) noexcept nogil:
    # Remove the first bytes of the list `ready`.
    cdef Node* node
    while size and side.ready != NONE:
        node = &nodes.at[side.ready]
        if size < node.size:
            if node.owned is not NULL:
                nodes.owned_bytes -= size
            node.data += size
            node.position += size
            node.size -= <uint32_t>size
            side.ready_bytes -= size
            side.given = node.position
            side.dropped = node.position
            return
        size -= node.size
        side.given = node.position + node.size
        drop_node(nodes, side)


cdef inline void drop_piece(NodeArena* nodes, Side* side) noexcept nogil:
    # Remove the first bytes of the list `ready` up to a gap. The row of a gap has no bytes.
    cdef uint64_t expected
    if side.ready == NONE or nodes.at[side.ready].position > side.dropped:
        if side.ready != NONE:
            side.dropped = nodes.at[side.ready].position
        return
    expected = nodes.at[side.ready].position
    while side.ready != NONE and nodes.at[side.ready].position == expected:
        expected += nodes.at[side.ready].size
        drop_node(nodes, side)
    side.dropped = expected


cdef inline void drop_node(NodeArena* nodes, Side* side) noexcept nogil:
    # Remove the first node of the list `ready`.
    cdef int32_t i = side.ready
    cdef Node* node = &nodes.at[i]
    side.ready = node.next
    if side.ready == NONE:
        side.ready_last = NONE
    side.ready_bytes -= node.size
    side.dropped = node.position + node.size
    if node.owned is not NULL:
        nodes.owned_bytes -= node.size + NODE_COST
    free(node.owned)
    node.owned = NULL
    node.size = 0
    node.next = nodes.free_node
    nodes.free_node = i


cdef inline bint own_borrowed(NodeArena* nodes) noexcept nogil:
    # Copy the bytes that are in the caller's buffers. Return False where there is no memory.
    cdef size_t i
    cdef Node* node
    cdef char* copy
    for i in range(nodes.borrowed.count):
        if i + PREFETCH_NODES < nodes.borrowed.count:
            prefetch_node(nodes, <int32_t>nodes.borrowed.at[i + PREFETCH_NODES])
        node = &nodes.at[<int32_t>nodes.borrowed.at[i]]
        if node.size == 0 or node.owned is not NULL:
            continue
        copy = <char*>malloc(node.size)
        if copy is NULL:
            return False
        memcpy(copy, node.data, node.size)
        nodes.owned_bytes += node.size + NODE_COST
        node.owned = copy
        node.data = <const uint8_t*>copy
    nodes.borrowed.count = 0
    return True
