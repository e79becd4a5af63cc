# Columns that grow value by value: the memory of nested Arrow arrays.
#
# A column is a node of a tree. A kernel adds one value to the root for each payload. If a payload
# is bad, `truncate` removes what was added of it: the offsets and the counts say what that is.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum NodeKind:
    NULLS                       # no values, only a count
    FIXED                       # `width` bytes for each value
    BYTES                       # byte strings of any size
    LIST                        # the child has all elements
    STRUCT                      # each child has one value for each value

cdef struct Memory:
    uint8_t* at
    size_t size
    size_t capacity

cdef struct Node:
    NodeKind kind
    uint32_t width
    int32_t first_child         # index in `Tree.children`
    int32_t child_count
    int64_t weight              # values that a null adds, of this node and of nodes in structs
    size_t count
    Memory valid                # one byte for each value: 1, or 0 for null
    Memory values               # of FIXED and BYTES
    Memory offsets              # of BYTES and LIST: int32, count + 1 of them

cdef struct Tree:
    Node* nodes
    int32_t* children

cdef bint grow(Memory* memory, size_t size) noexcept nogil


cdef inline uint8_t* extend(Memory* memory, size_t size) noexcept nogil:
    # Add `size` bytes, at least 1, and return their address. NULL: out of memory.
    cdef uint8_t* p
    if memory.capacity - memory.size < size and not grow(memory, size):
        return NULL
    p = memory.at + memory.size
    memory.size += size
    return p


cdef inline bint add_validity(Node* node, uint8_t is_valid) noexcept nogil:
    cdef uint8_t* p = extend(&node.valid, 1)
    if p is NULL:
        return False
    p[0] = is_valid
    node.count += 1
    return True


cdef inline bint add_fixed(Node* node, const void* value, size_t width) noexcept nogil:
    # Add a value of FIXED. `width` is node.width: a constant at most calls.
    cdef uint8_t* p = extend(&node.values, width)
    if p is NULL:
        return False
    memcpy(p, value, width)
    return add_validity(node, 1)


cdef inline bint add_offset(Node* node, size_t end) noexcept nogil:
    cdef int32_t offset = <int32_t>end
    cdef uint8_t* p
    if end > 0x7fffffff:
        return False
    p = extend(&node.offsets, 4)
    if p is NULL:
        return False
    memcpy(p, &offset, 4)
    return True


cdef inline bint add_bytes(Node* node, const uint8_t* value, size_t size) noexcept nogil:
    # Add a value of BYTES. False: out of memory, or more than 2 GiB in the column.
    cdef uint8_t* p
    if size:
        p = extend(&node.values, size)
        if p is NULL:
            return False
        memcpy(p, value, size)
    return add_offset(node, node.values.size) and add_validity(node, 1)


cdef inline bint close_list(Tree* tree, Node* node) noexcept nogil:
    # Add a value of LIST: the elements that the child got since the last value.
    cdef Node* child = &tree.nodes[tree.children[node.first_child]]
    return add_offset(node, child.count) and add_validity(node, 1)


cdef bint add_null(Tree* tree, int32_t number) noexcept nogil
cdef void truncate(Tree* tree, int32_t number, size_t count) noexcept nogil
cdef bint retain(Tree* tree, int32_t number, size_t first, const uint8_t* keep) noexcept nogil

cdef class ValueBuilder:
    cdef Tree tree
    cdef int32_t node_count
