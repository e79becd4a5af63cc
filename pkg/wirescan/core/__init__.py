"""The kernel toolkit: reader, writer, text, loop over frames, checksums, rows and byte strings.

The protocol packages build their kernels from it. Start with `loop.pxd`: it describes rows, and
the functions that a kernel gives to the loop.

What kernels use:

    loop.pxd                the loop over frames, in three forms; loop.pyx is its Python side
    reader.pxd              the cursor over a buffer; varint.h, bits.h and view.h are its fast parts
    text.pxd                lines, blanks and decimals in frames
    writer.pxd              stores into memory; writer.pyx drives writers in two passes over rows
    fault.pxd               why a frame is bad: the enumeration `Fault`
    checksum.pyx            CRC-32, CRC-32C and Adler-32
    strings.pyx             arrays of byte strings in any memory layout
    pairs.pyx               pairs of key and value for each row, such as headers

Rows and columns:

    rows.pyx                memory for rows, grown in C and exported to numpy
    row_arrays.py           whole rows of structured arrays: select, copy, join, group
    shares.pyx              rows that several threads fill
    column_writer.pyx       columns in the layouts of Arrow, written while a scan reads
    gather.pyx              byte strings of rows: compared in place, or gathered
    table_fields.pyx        the attributes of a table
    stop.py                 `Stop`: why the scan of a buffer ended
    grow_memory.pxd         huge pages for large memory, also for memory that grows

Decompression and threads:

    inflate.pyx             many zlib streams with one state
    span_decompressor.pyx   many gzip, zlib and zstd payloads in one loop
    libdeflate.pyx          gzip and zlib with libdeflate
    libzstd.pyx             zstd with libzstd
    shared_libraries.py     C libraries that Python packages bring
    parallel.py             threads for work without the GIL

Arguments and headers:

    arguments.py            the arguments of encoders, as arrays
    varint.py               varints of encoders
    arrow_input.py          the buffers of Arrow arrays that a caller gives
    include_path.py         `wirescan.get_include`: the directory of the C headers

Imports nothing from other folders.
"""
