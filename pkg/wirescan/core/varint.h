/* Varints into memory: base-128 groups, low group first; the top bit of a byte says that more follow. Most are of one
 * byte or two, and neighbouring ones unlike enough that a branch on which would often be mispredicted: there is none.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes in the varint of a value. */
static inline size_t varint_size(uint64_t value) {
    size_t size = 1 + (value > 0x7f);
    if (value >> 14)
        while (size < 10 && value >> 7 * size)
            size++;
    return size;
}

/* Write a varint and return where it ends. The byte behind it may be written too. */
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

static inline uint64_t zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63));
}
