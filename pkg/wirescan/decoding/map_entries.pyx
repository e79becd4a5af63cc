# cython: boundscheck=False, wraparound=False
"""The last entry of each key in a map.

Later entries replace earlier ones in the libraries of Avro, Protobuf and Thrift. In Arrow, nothing
does: DuckDB and others refuse a whole batch that has a key twice in one map.
"""
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memset
from wirescan.decoding.value_builder cimport BYTES, FIXED, Node, Tree, retain

cdef enum:
    SMALL_MAP = 16              # entries whose keys are compared in pairs

cdef struct MapKey:
    const uint8_t* at
    int32_t size
    int32_t entry


cdef int compare_keys(const void* a, const void* b) noexcept nogil:
    # Order keys by their bytes, and equal ones by their entries.
    cdef const MapKey* first = <const MapKey*>a
    cdef const MapKey* second = <const MapKey*>b
    cdef int order = 0
    if first.size != second.size:
        return -1 if first.size < second.size else 1
    if first.size:
        order = memcmp(first.at, second.at, first.size)
    if order:
        return order
    return -1 if first.entry < second.entry else 1


cdef inline bint is_same_key(const MapKey* first, const MapKey* second) noexcept nogil:
    if first.size != second.size:
        return False
    return first.size == 0 or memcmp(first.at, second.at, first.size) == 0


cdef void set_key(const Node* node, size_t at, int32_t entry, MapKey* key) noexcept nogil:
    cdef const int32_t* offsets
    key.entry = entry
    if node.kind == FIXED:
        key.at = node.values.at + at * node.width
        key.size = <int32_t>node.width
    else:
        offsets = <const int32_t*>node.offsets.at
        key.at = node.values.at + offsets[at]
        key.size = offsets[at + 1] - offsets[at]


cdef bint has_same_keys(const Node* node, size_t first, size_t count) noexcept nogil:
    # Whether two of a few entries have one key.
    cdef MapKey[SMALL_MAP] keys
    cdef size_t i, j
    for i in range(count):
        set_key(node, first + i, <int32_t>i, &keys[i])
        for j in range(i):
            if is_same_key(&keys[i], &keys[j]):
                return True
    return False


cdef bint keep_last_entries(Tree* tree, int32_t list_number, int32_t number) noexcept nogil:
    # Keep the last entry of each key in a map that is not closed yet. Its list and the entries are
    # nodes of the tree. Keys that are structs or lists are not compared. False: out of memory.
    cdef const Node* entries = &tree.nodes[number]
    cdef const Node* node = &tree.nodes[tree.children[entries.first_child]]
    cdef const Node* list_node = &tree.nodes[list_number]
    cdef size_t first = (<const int32_t*>list_node.offsets.at)[list_node.count]
    cdef size_t count = entries.count - first
    cdef size_t i
    cdef bint is_fine = True
    cdef MapKey* keys
    cdef uint8_t* keep
    if node.kind != FIXED and node.kind != BYTES:
        return True
    if count < 2 or count <= SMALL_MAP and not has_same_keys(node, first, count):
        return True
    if count > 0x7fffffff:
        return False
    keys = <MapKey*>malloc(count * sizeof(MapKey))
    keep = <uint8_t*>malloc(count)
    if keys is not NULL and keep is not NULL:
        for i in range(count):
            set_key(node, first + i, <int32_t>i, &keys[i])
        qsort(keys, count, sizeof(MapKey), &compare_keys)
        memset(keep, 1, count)
        for i in range(1, count):
            if is_same_key(&keys[i - 1], &keys[i]):
                keep[keys[i - 1].entry] = 0
        is_fine = retain(tree, number, first, keep)
    else:
        is_fine = False
    free(keys)
    free(keep)
    return is_fine
