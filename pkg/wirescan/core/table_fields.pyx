"""The attributes of a table, in C: a small buffer is scanned in less time than Python sets them."""
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)


def make_triple(type kind, first, second, third):
    """Return a named tuple of three values, in a third of the time of its class.

    kind: the class, which `typing.NamedTuple` made.
    """
    triple = PyType_GenericAlloc(kind, 3)
    Py_INCREF(first)
    PyTuple_SET_ITEM(triple, 0, first)
    Py_INCREF(second)
    PyTuple_SET_ITEM(triple, 1, second)
    Py_INCREF(third)
    PyTuple_SET_ITEM(triple, 2, third)
    return triple


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
