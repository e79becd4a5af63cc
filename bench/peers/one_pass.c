// A bound on what is possible: uncompressed batches of magic 2 to four Arrow columns, in one pass.
//
// It verifies no checksum and checks no bounds, so it is only for bytes that are known to be good.
// The bytes must be readable for 32 bytes after their end. Null keys and values become empty views.
#include <stdint.h>
#include <string.h>
#ifdef __BMI2__
#include <immintrin.h>
#endif

enum { HEADER_SIZE = 61, LENGTH_AT = 8, LENGTH_END = 12, TIMESTAMP_AT = 27, COUNT_AT = 57 };
enum { INLINE_SIZE = 12 };  // bytes that a binary view holds itself

typedef struct { int32_t size; uint8_t prefix[4]; int32_t buffer; int32_t position; } LongView;

static inline int64_t load_i64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return (int64_t)__builtin_bswap64(word);
}

static inline int32_t load_i32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return (int32_t)__builtin_bswap32(word);
}

// Read a zig-zag varint of at most 8 bytes. The lowest clear top bit of a byte ends it.
static inline int64_t read_varint(const uint8_t **p) {
    uint64_t word, value;
    memcpy(&word, *p, 8);
    unsigned last = (unsigned)__builtin_ctzll(~word & 0x8080808080808080u);
    *p += last / 8 + 1;
    word &= (2ull << last) - 1;
#ifdef __BMI2__
    value = _pext_u64(word, 0x7f7f7f7f7f7f7f7fu);
#else
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    value = (word & 0x0fffffffu) | (word & 0x0fffffff00000000u) >> 4;
#endif
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static inline void write_view(uint8_t *view, const uint8_t *bytes, const uint8_t *p, int64_t size) {
    if (size > INLINE_SIZE) {
        LongView whole = {(int32_t)size, {0}, 0, (int32_t)(p - bytes)};
        memcpy(whole.prefix, p, 4);
        memcpy(view, &whole, 16);
        return;
    }
    uint64_t low, high;
    unsigned used = size > 0 ? (unsigned)size : 0;
    memcpy(&low, p, 8);
    memcpy(&high, p + 8, 8);
    low = used >= 8 ? low : low & ((1ull << 8 * used) - 1);
    high = used > 8 ? high & ((1ull << 8 * (used - 8)) - 1) : 0;
    memcpy(view, &used, 4);
    memcpy(view + 4, &low, 8);
    memcpy(view + 12, &high, 4);
}

// Return the number of records.
int64_t one_pass(const uint8_t *bytes, int64_t size, int64_t *offsets, int64_t *timestamps,
                 uint8_t *keys, uint8_t *values) {
    int64_t row = 0;
    for (int64_t start = 0; start + HEADER_SIZE <= size;) {
        const uint8_t *batch = bytes + start, *p = batch + HEADER_SIZE;
        int64_t first_offset = load_i64(batch), first_time = load_i64(batch + TIMESTAMP_AT);
        for (int64_t stop = row + load_i32(batch + COUNT_AT); row < stop; row++) {
            int64_t length = read_varint(&p);
            const uint8_t *next = p + length;
            p++;  // the attributes of the record
            timestamps[row] = first_time + read_varint(&p);
            offsets[row] = first_offset + read_varint(&p);
            int64_t key_size = read_varint(&p);
            write_view(keys + 16 * row, bytes, p, key_size);
            p += key_size > 0 ? key_size : 0;
            int64_t value_size = read_varint(&p);
            write_view(values + 16 * row, bytes, p, value_size);
            p = next;
        }
        start += LENGTH_END + load_i32(batch + LENGTH_AT);
    }
    return row;
}
