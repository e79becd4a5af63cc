# cython: boundscheck=False, wraparound=False
"""Columns that grow value by value: see value_builder.pxd. `column_tree.py` makes arrays of it.

Source of the layouts: Apache Arrow columnar format 1.4, "Variable-size Binary Layout",
"Variable-size List Layout", "Struct Layout".
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memmove

cdef enum:
    SMALLEST = 1024             # bytes of the first memory


cdef bint grow(Memory* memory, size_t size) noexcept nogil:
    # Make `size` more bytes fit. False: out of memory; the memory is then unchanged.
    cdef size_t capacity = max(memory.capacity * 2, memory.size + size, <size_t>SMALLEST)
    cdef uint8_t* p = <uint8_t*>realloc(memory.at, capacity)
    if p is NULL:
        return False
    memory.at = p
    memory.capacity = capacity
    return True


cdef bint add_null(Tree* tree, int32_t number) noexcept nogil:
    # Add a null, and one to each child of a struct. False: out of memory.
    cdef Node* node = &tree.nodes[number]
    cdef uint8_t* p
    cdef int32_t i
    if node.kind == FIXED:
        p = extend(&node.values, node.width)
        if p is NULL:
            return False
        memset(p, 0, node.width)
    elif node.kind == BYTES:
        if not add_offset(node, node.values.size):
            return False
    elif node.kind == LIST:
        if not add_offset(node, tree.nodes[tree.children[node.first_child]].count):
            return False
    elif node.kind == STRUCT:
        for i in range(node.first_child, node.first_child + node.child_count):
            if not add_null(tree, tree.children[i]):
                return False
    return add_validity(node, 0)


cdef void truncate(Tree* tree, int32_t number, size_t count) noexcept nogil:
    # Keep the first `count` values of a node. It may have fewer complete ones than its children.
    cdef Node* node = &tree.nodes[number]
    cdef int32_t* offsets
    cdef int32_t i
    if node.count > count:
        node.count = count
    node.valid.size = count
    if node.kind == FIXED:
        node.values.size = count * node.width
    elif node.kind == BYTES:
        node.offsets.size = 4 * (count + 1)
        offsets = <int32_t*>node.offsets.at
        node.values.size = offsets[count]
    elif node.kind == LIST:
        node.offsets.size = 4 * (count + 1)
        offsets = <int32_t*>node.offsets.at
        truncate(tree, tree.children[node.first_child], offsets[count])
    elif node.kind == STRUCT:
        for i in range(node.first_child, node.first_child + node.child_count):
            truncate(tree, tree.children[i], count)


cdef bint retain(Tree* tree, int32_t number, size_t first, const uint8_t* keep) noexcept nogil:
    # Of the values from `first` on, keep those whose byte in `keep` is 1. False: out of memory;
    # the values are then incomplete.
    cdef Node* node = &tree.nodes[number]
    cdef size_t count = node.count - first
    cdef size_t to = first
    cdef size_t i
    cdef int32_t child
    if node.kind == LIST and not retain_elements(tree, node, first, keep):
        return False
    if node.kind == STRUCT:
        for child in range(node.first_child, node.first_child + node.child_count):
            if not retain(tree, tree.children[child], first, keep):
                return False
    if node.kind == BYTES or node.kind == LIST:
        retain_offsets(node, first, keep)
    for i in range(count):
        if keep[i]:
            if node.kind == FIXED:
                memmove(node.values.at + to * node.width,
                        node.values.at + (first + i) * node.width, node.width)
            node.valid.at[to] = node.valid.at[first + i]
            to += 1
    if node.kind == FIXED:
        node.values.size = to * node.width
    node.valid.size = to
    node.count = to
    return True


cdef bint retain_elements(Tree* tree, const Node* node, size_t first,
                          const uint8_t* keep) noexcept nogil:
    # Keep the elements of the lists that are kept. False: out of memory.
    cdef const int32_t* offsets = <const int32_t*>node.offsets.at
    cdef size_t base = offsets[first]
    cdef size_t count = offsets[node.count] - base
    cdef uint8_t* kept = <uint8_t*>malloc(max(count, <size_t>1))
    cdef size_t i
    cdef bint is_fine
    if kept is NULL:
        return False
    for i in range(first, node.count):
        memset(kept + offsets[i] - base, keep[i - first], offsets[i + 1] - offsets[i])
    is_fine = retain(tree, tree.children[node.first_child], base, kept)
    free(kept)
    return is_fine


cdef void retain_offsets(Node* node, size_t first, const uint8_t* keep) noexcept nogil:
    # Keep the offsets of the values that are kept, and the bytes of BYTES.
    cdef int32_t* offsets = <int32_t*>node.offsets.at
    cdef size_t to = first
    cdef size_t i
    cdef int32_t start = offsets[first]
    cdef int32_t stop
    for i in range(first, node.count):
        stop = offsets[i + 1]           # writing may replace it: `to` is at most i
        if keep[i - first]:
            if node.kind == BYTES and stop > start:
                memmove(node.values.at + offsets[to], node.values.at + start, stop - start)
            offsets[to + 1] = offsets[to] + stop - start
            to += 1
        start = stop
    node.offsets.size = 4 * (to + 1)
    if node.kind == BYTES:
        node.values.size = offsets[to]


cdef bytes copy_memory(Memory* memory):
    return PyBytes_FromStringAndSize(<char*>memory.at, memory.size)


cdef class ValueBuilder:
    """The memory of nested columns: ValueBuilder([(kind, width, children), ...]).

    Each tuple is one node: the number of its `NodeKind`, the bytes of a fixed value or 0, and the
    indexes of its children. A child comes after its parent, and node 0 is the root.

    Raises MemoryError.
    """

    def __cinit__(self, list nodes):
        cdef int32_t i, first = 0
        cdef Node* node
        self.node_count = <int32_t>len(nodes)
        self.tree.nodes = <Node*>calloc(max(self.node_count, 1), sizeof(Node))
        self.tree.children = <int32_t*>calloc(max(self.node_count, 1), sizeof(int32_t))
        if self.tree.nodes is NULL or self.tree.children is NULL:
            raise MemoryError("no memory for the columns")
        for i, (kind, width, children) in enumerate(nodes):
            node = &self.tree.nodes[i]
            node.kind = kind
            node.width = width
            node.first_child = first
            node.child_count = <int32_t>len(children)
            for child in children:
                assert i < child < self.node_count
                self.tree.children[first] = child
                first += 1
            if kind in (BYTES, LIST) and not add_offset(node, 0):
                raise MemoryError("no memory for the columns")
        for i in range(self.node_count - 1, -1, -1):
            node = &self.tree.nodes[i]
            node.weight = 1
            if node.kind == STRUCT:
                for first in range(node.first_child, node.first_child + node.child_count):
                    node.weight += self.tree.nodes[self.tree.children[first]].weight

    def __dealloc__(self):
        cdef int32_t i
        if self.tree.nodes is not NULL:
            for i in range(self.node_count):
                free(self.tree.nodes[i].valid.at)
                free(self.tree.nodes[i].values.at)
                free(self.tree.nodes[i].offsets.at)
        free(self.tree.nodes)
        free(self.tree.children)

    def export(self):
        """Return (count, validity, values, offsets) for each node.

        validity: bytes, one for each value. values, offsets: bytes as Arrow has them.
        """
        return [
            (self.tree.nodes[i].count, copy_memory(&self.tree.nodes[i].valid),
             copy_memory(&self.tree.nodes[i].values), copy_memory(&self.tree.nodes[i].offsets))
            for i in range(self.node_count)
        ]
