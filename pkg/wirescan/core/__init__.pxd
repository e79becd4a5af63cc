# The names that the kernels of a protocol package need, for one cimport.
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.fault cimport (
    BAD_CHECKSUM, BAD_CODEC, BAD_COUNT, BAD_FIELD, BAD_HEADER, BAD_KIND, BAD_LENGTH, BAD_MAGIC,
    BAD_NULL, BAD_OFFSET, BAD_VARINT, BAD_VERSION, EMPTY, FILLER, Fault, LEFTOVER, LIMIT, LOST,
    NESTED, NOT_A_FRAME, OK, SHORT, TOO_LARGE, TRUNCATED, ZEROS)
from wirescan.core.reader cimport (
    Gaps, Reader, TOPS, VIEW_BYTES, VarintLayout, ViewMask, be16, be32, be64, clear_row, enter,
    extract, gaps, join_groups, learn, left, le16, le32, le64, lowest, matches, pack_common,
    pack_pair, prefetch, put_wide_view, rarely, sized, store_word, take, take_sign, unknown,
    unzigzag, varint32, varint64, zigzag32, zigzag64)
from wirescan.core.checksum cimport crc32_of, crc32c_of
from wirescan.core.loop cimport (
    ColumnTargets, Context, Head, LIKELY, NestedScan, Parents, ReadColumns, ReadRun, Readable,
    RunMemory, SOME, ScanState, SearchBudget, UNDECIDED, VerifyFrame, add_each, charge_budget,
    charge_walk, find_intact_frame, is_inside, locate_frame, may_walk, open_frames, open_rows,
    place, scan_buffer, scan_children, scan_frames, scan_spans, span_body)
from wirescan.core.rows cimport Rows, begin_row
