# cython: boundscheck=False, wraparound=False
"""Pairs of key and value for each row, such as headers, in one array that the writers read."""
from libc.string cimport memset
from wirescan.core.strings cimport ByteStrings


cdef class Pairs:
    """The header pairs of rows, made by `of_lists` or `of_columns`. Its length is the row count."""

    cdef int allocate(self, Py_ssize_t count, Py_ssize_t pairs) except -1:
        self.pairs = Block(pairs * <Py_ssize_t>sizeof(Pair))
        self.ends = Block(8 * (count + 1))
        self.count = count
        self.pair = <Pair*>self.pairs.at
        self.end = <int64_t*>self.ends.at
        memset(self.end, 0, 8 * <size_t>(count + 1))
        return 0

    @staticmethod
    def of_lists(first, counts, ByteStrings keys not None, ByteStrings values not None):
        """Return pairs of which row i has `counts[i]`, from number `first[i]` on.

        first, counts: int64 arrays. keys, values: of equal length; pair j is keys[j] and values[j].
        Raises ValueError where the arrays do not fit each other or the pairs, and for a null key.
        """
        cdef const int64_t[::1] starts = first, sizes = counts
        cdef Strings key = keys.strings, value = values.strings
        cdef Pairs self = Pairs.__new__(Pairs)
        cdef int64_t available = len(keys), total = 0, number
        cdef Py_ssize_t i, n = starts.shape[0]
        cdef bint good = n == sizes.shape[0] and available == len(values)
        cdef Pair* pair
        cdef int64_t* end
        if good:
            for i in range(n):
                good &= (0 <= sizes[i] <= available - total
                         and 0 <= starts[i] <= available - sizes[i])
                if not good:
                    break
                total += sizes[i]
        if not good:
            raise ValueError("the counts of headers do not fit their keys and values")
        self.allocate(n, total)
        self.owners = keys, values
        pair = self.pair
        end = self.end
        with nogil:
            for i in range(n):
                for number in range(starts[i], starts[i] + sizes[i]):
                    pair[0] = Pair(string_at(&key, number), string_at(&value, number),
                                   size_of(&key, number), size_of(&value, number))
                    good &= pair.key_size >= 0
                    pair += 1
                end[i + 1] = pair - self.pair
                if not good:
                    break
        if not good:
            raise ValueError(f"row {i}: a header's key must not be null")
        return self

    @staticmethod
    def of_columns(list keys not None, list columns not None, Py_ssize_t count):
        """Return pairs of which each row has one for each key, in the order of `keys`.

        keys: list of bytes. columns: list of as many `ByteStrings`, each of `count` values. A null
        value omits its pair. Raises ValueError for columns of unequal length.
        """
        cdef Pairs self = Pairs.__new__(Pairs)
        cdef ByteStrings names = ByteStrings(list(keys)), column
        cdef Strings name = names.strings, value
        cdef int64_t total = 0, size
        cdef Py_ssize_t i, c = 0
        columns = list(columns)
        if len(columns) != len(keys) or any(len(strings) != count for strings in columns):
            raise ValueError("columns of unequal length")
        self.allocate(count, sum(len(strings) - strings.nulls for strings in columns))
        self.owners = names, columns
        # First the number of pairs of each row, then the position of its next pair. When all pairs
        # are written, this is the end of the row.
        cdef int64_t* at = self.end + 1
        for column in columns:
            value = column.strings
            with nogil:
                for i in range(count):
                    at[i] += size_of(&value, i) >= 0
        for i in range(count):
            size = at[i]
            at[i] = total
            total += size
        for column in columns:
            value = column.strings
            with nogil:
                for i in range(count):
                    if size_of(&value, i) >= 0:
                        self.pair[at[i]] = Pair(string_at(&name, c), string_at(&value, i),
                                                size_of(&name, c), size_of(&value, i))
                        at[i] += 1
            c += 1
        return self

    def __len__(self):
        return self.count
