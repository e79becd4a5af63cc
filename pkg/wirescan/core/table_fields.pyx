"""The attributes of a table, in C: a small buffer is scanned in less time than Python sets them."""


cdef class TableFields:
    """The read-only attributes of `FrameTable`, which describes them."""
    cdef readonly object buffers
    cdef readonly object rows
    cdef readonly object stops
    cdef readonly object format
    cdef readonly object outer
    cdef readonly object origins
    cdef readonly object checked
    cdef readonly object errors

    def __init__(self, buffers, rows, stops=(), format=None, outer=None, origins=(), checked=False,
                 errors="strict"):
        self.buffers = buffers
        self.rows = rows
        self.stops = stops
        self.format = format
        self.outer = outer
        self.origins = origins
        self.checked = checked
        self.errors = errors
