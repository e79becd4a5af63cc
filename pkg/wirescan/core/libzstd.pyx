# cython: boundscheck=False, wraparound=False
"""Fast decompression of zstd frames (RFC 8878) with libzstd, without the GIL.

cramjam makes a new context for each payload, which takes longer than a payload of 16 KiB. Here one
context decompresses many payloads.

The package `zstandard` contains libzstd. Its functions are looked up at run time in the extension
module of that package, or else in a shared library of the system. `available` is False where no
library exports them. Then cramjam decompresses everything.

As in `wirescan.core.libdeflate`, a failure has no reason: the caller lets cramjam decompress the
payload again, and reports what it finds.
"""
from wirescan.core.shared_libraries import find_functions, list_library_paths

cdef enum:
    FRAME_FLAGS_AT = 4                  # after the magic
    SINGLE_SEGMENT = 0x20               # this flag means: the frame has no window descriptor
    LARGEST_WINDOW = 17 << 3            # the window descriptor of 128 MiB
    SMALLEST_FRAME = 6                  # bytes in the magic, the flags and the descriptor
    LARGEST_OUTPUT = 128 << 20          # bytes; in a single segment, the output is the window

# From zstd.h. `size_t` is a number of bytes, or an error that `ZSTD_isError` recognizes.
ctypedef void* (*CreateContext)() noexcept nogil
ctypedef size_t (*FreeContext)(void*) noexcept nogil
ctypedef size_t (*DecompressFrame)(void*, void*, size_t, const void*, size_t) noexcept nogil
ctypedef size_t (*FindFrameSize)(const void*, size_t) noexcept nogil
ctypedef unsigned int (*IsError)(size_t) noexcept nogil

cdef CreateContext library_create = NULL
cdef FreeContext library_free = NULL
cdef DecompressFrame library_decompress = NULL
cdef FindFrameSize library_find_size = NULL
cdef IsError library_is_error = NULL


_functions = find_functions(
    list_library_paths("zstandard", "backend_c", "libzstd.so.1", "libzstd.1.dylib"),
    ("ZSTD_createDCtx", "ZSTD_freeDCtx", "ZSTD_decompressDCtx", "ZSTD_findFrameCompressedSize",
     "ZSTD_isError"))
available = _functions is not None
if available:
    library_create = <CreateContext><size_t>_functions[0]
    library_free = <FreeContext><size_t>_functions[1]
    library_decompress = <DecompressFrame><size_t>_functions[2]
    library_find_size = <FindFrameSize><size_t>_functions[3]
    library_is_error = <IsError><size_t>_functions[4]


cdef void* make_zstd_context() noexcept nogil:
    return library_create() if library_create is not NULL else NULL


cdef void free_zstd_context(void* context) noexcept nogil:
    if context is not NULL:
        library_free(context)


cdef bint decompress_zstd(void* context, const uint8_t* at, size_t size, uint8_t* out,
                          size_t capacity, size_t* written) noexcept nogil:
    cdef size_t result
    if size < SMALLEST_FRAME:
        return False
    if at[0] != 0x28 or at[1] != 0xB5 or at[2] != 0x2F or at[3] != 0xFD:
        return False
    if not at[FRAME_FLAGS_AT] & SINGLE_SEGMENT and at[FRAME_FLAGS_AT + 1] > LARGEST_WINDOW:
        return False
    if library_find_size(at, size) != size:
        return False
    result = library_decompress(context, out, min(capacity, <size_t>LARGEST_OUTPUT), at, size)
    if library_is_error(result):
        return False
    written[0] = result
    return True


cdef class ZstdDecompressor:
    """A decompression context of libzstd. Raises MemoryError, also where the library is missing.

    One thread at a time may use it.
    """
    cdef void* context

    def __cinit__(self):
        self.context = make_zstd_context()
        if self.context is NULL:
            raise MemoryError("no memory to decompress zstd")

    def __dealloc__(self):
        free_zstd_context(self.context)

    def decompress(self, const uint8_t[::1] payload not None, uint8_t[::1] out not None):
        """Decompress a zstd frame; return the bytes written to `out`, or -1 for a failure.

        A failure is any payload that is not one intact frame, whose window has more than 128 MiB,
        or that does not fit into `out`.
        """
        cdef size_t written = 0
        cdef size_t size = payload.shape[0], capacity = out.shape[0]
        cdef const uint8_t* at = &payload[0] if size else NULL
        cdef uint8_t* target = &out[0] if capacity else <uint8_t*>b""
        cdef bint good
        with nogil:
            good = decompress_zstd(self.context, at, size, target, capacity, &written)
        return <Py_ssize_t>written if good else -1
