# cython: boundscheck=False, wraparound=False
"""The pairs of key and value that rows have, such as headers, laid side by side for who writes them."""
from libc.string cimport memset
from wirescan.core.strings cimport ByteStrings


cdef class Pairs:
    """The header pairs of rows, as `of_lists` and `of_columns` make them. A length: how many rows there are."""

    cdef int room(self, Py_ssize_t count, Py_ssize_t pairs) except -1:
        self.pairs, self.ends, self.count = Block(pairs * <Py_ssize_t>sizeof(Pair)), Block(8 * (count + 1)), count
        self.pair, self.end = <Pair*>self.pairs.at, <int64_t*>self.ends.at
        memset(self.end, 0, 8 * <size_t>(count + 1))
        return 0

    @staticmethod
    def of_lists(first, counts, ByteStrings keys not None, ByteStrings values not None):
        """Row i has `counts[i]` pairs, from number `first[i]` on in keys and values, which are of equal length.

        Raises ValueError where the numbers, int64 arrays, do not fit each other and them; for a key that is null.
        """
        cdef const int64_t[::1] starts = first, sizes = counts
        cdef Strings key = keys.strings, value = values.strings
        cdef Pairs self = Pairs.__new__(Pairs)
        cdef int64_t known = len(keys), total = 0, number
        cdef Py_ssize_t i, n = starts.shape[0]
        cdef bint good = n == sizes.shape[0] and known == len(values)
        cdef Pair* pair
        cdef int64_t* end
        if good:
            for i in range(n):
                good &= 0 <= sizes[i] <= known - total and 0 <= starts[i] <= known - sizes[i]
                if not good:
                    break
                total += sizes[i]
        if not good:
            raise ValueError("the counts of headers do not fit their keys and values")
        self.room(n, total)
        self.held, pair, end = (keys, values), self.pair, self.end
        with nogil:
            for i in range(n):
                for number in range(starts[i], starts[i] + sizes[i]):
                    pair[0] = Pair(string_at(&key, number), string_at(&value, number), size_of(&key, number),
                                   size_of(&value, number))
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
        """A list of bytes, and a list of as many `ByteStrings` of `count` values, in the order of the pairs in a row.
        A null leaves its pair out. Raises ValueError for columns of unequal length."""
        cdef Pairs self = Pairs.__new__(Pairs)
        cdef ByteStrings names = ByteStrings(list(keys)), column
        cdef Strings name = names.strings, value
        cdef int64_t total = 0, size
        cdef Py_ssize_t i, c = 0
        columns = list(columns)
        if len(columns) != len(keys) or any(len(one) != count for one in columns):
            raise ValueError("columns of unequal length")
        self.room(count, sum(len(one) - one.nulls for one in columns))
        self.held = names, columns
        cdef int64_t* at = self.end + 1         # of each row: how many pairs, then where the next one goes, which is
        for column in columns:                  # the row's end when all are there
            value = column.strings
            with nogil:
                for i in range(count):
                    at[i] += size_of(&value, i) >= 0
        for i in range(count):
            size, at[i] = at[i], total
            total += size
        for column in columns:
            value = column.strings
            with nogil:
                for i in range(count):
                    if size_of(&value, i) >= 0:
                        self.pair[at[i]] = Pair(string_at(&name, c), string_at(&value, i), size_of(&name, c),
                                                size_of(&value, i))
                        at[i] += 1
            c += 1
        return self

    def __len__(self):
        return self.count
