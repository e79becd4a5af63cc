/* Encoding of varints: base-128 groups, low group first. The top bit of a byte says that more bytes
 * follow.
 *
 * Most varints have one or two bytes, in no predictable order. A branch on the size would often be
 * mispredicted, so these two sizes share a path without a branch.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Return the number of bytes in the varint of a value. */
static inline size_t varint_size(uint64_t value) {
    size_t size = 1 + (value > 0x7f);
    if (value >> 14)
        while (size < 10 && value >> 7 * size)
            size++;
    return size;
}

/* Write a varint and return the address after it. One byte after the varint may be overwritten. */
static inline uint8_t* put_varint(uint8_t* to, uint64_t value) {
    unsigned more = value > 0x7f;
    if (value >> 14 == 0) {
        to[0] = (uint8_t)(value | more << 7);
        to[1] = (uint8_t)(value >> 7);
        return to + 1 + more;
    }
    for (; value > 0x7f; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

/* Return the zig-zag code of a signed integer: the sign is in the lowest bit. */
static inline uint64_t zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63));
}
