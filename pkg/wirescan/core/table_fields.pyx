"""The attributes of a table, in C: a small buffer is scanned in less time than Python sets them."""
from wirescan.core.stop import make_stop


cdef class TableFields:
    """The read-only attributes of `FrameTable`, which describes them.

    stops: each is a `Stop`, or a tuple of its three values, which becomes a `Stop` when somebody
    asks for it.
    """
    cdef readonly object buffers
    cdef readonly object rows
    cdef object given_stops
    cdef readonly object format
    cdef readonly object outer
    cdef readonly object origins
    cdef readonly object checked
    cdef readonly object errors

    def __init__(self, buffers, rows, stops=(), format=None, outer=None, origins=(), checked=False,
                 errors="strict"):
        self.buffers = buffers
        self.rows = rows
        self.given_stops = stops
        self.format = format
        self.outer = outer
        self.origins = origins
        self.checked = checked
        self.errors = errors

    @property
    def stops(self):
        if self.given_stops and type(self.given_stops[0]) is tuple:
            self.given_stops = tuple([make_stop(stop) for stop in self.given_stops])
        return self.given_stops
