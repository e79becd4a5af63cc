/* Write a binary view, Arrow's 16 bytes for a byte string.
 *
 *     size i4 | up to 12 bytes inline; or their first four bytes, the number of a buffer i4, the
 *     offset in that buffer i4
 *
 * Sizes around 12 follow no order, so a branch on them is often mispredicted. Where 16 bytes can be
 * read, a mask chooses the bytes that the view holds.
 *
 * Source: Apache Arrow columnar format 1.4, "Variable-size Binary View Layout".
 */
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum { VIEW_INLINE = 12, VIEW_PREFIX = 4, VIEW_BYTES = 16 };

/* Write the view of `used` bytes at `p`. `end` is the end of the readable bytes. `number` and
 * `offset` are for a string that is not inline. */
static inline void put_view(char* out, const uint8_t* p, const uint8_t* end, uint32_t used,
                            uint32_t number, uint32_t offset) {
    uint32_t words[4] = {0, 0, 0, 0};
#if defined(__SSE2__)
    static const uint8_t covers[32] = {255, 255, 255, 255, 255, 255, 255, 255,
                                       255, 255, 255, 255, 255, 255, 255, 255};
    if (end - p >= VIEW_BYTES) {
        uint32_t held = used > VIEW_INLINE ? VIEW_PREFIX : used;
        uint64_t is_outside = 0 - (uint64_t)(used > VIEW_INLINE);
        uint64_t place = ((uint64_t)offset << 32 | number) & is_outside;
        __m128i mask = _mm_loadu_si128((const __m128i*)(covers + VIEW_BYTES - held));
        __m128i bytes = _mm_and_si128(_mm_loadu_si128((const __m128i*)p), mask);
        __m128i sizes = _mm_set_epi64x((int64_t)place, used);
        _mm_storeu_si128((__m128i*)out, _mm_or_si128(_mm_slli_si128(bytes, 4), sizes));
        return;
    }
#endif
    words[0] = used;
    if (used > VIEW_INLINE) {
        memcpy(&words[1], p, VIEW_PREFIX);
        words[2] = number;
        words[3] = offset;
    } else if (used) {
        memcpy(&words[1], p, used);
    }
    (void)end;
    memcpy(out, words, VIEW_BYTES);
}
