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

/* What a view holds, by the size of its string; 15 stands for every size above 12. The first mask is
 * for the string's bytes, and the second for the size and the place outside. */
typedef struct {
    uint8_t string[VIEW_BYTES], place[VIEW_BYTES];
} ViewMask;

#define COVER(n, i) ((n) > (i) ? 255 : 0)
#define STRING_MASK(n) {0, 0, 0, 0, COVER(n, 0), COVER(n, 1), COVER(n, 2), COVER(n, 3), COVER(n, 4), \
                        COVER(n, 5), COVER(n, 6), COVER(n, 7), COVER(n, 8), COVER(n, 9), \
                        COVER(n, 10), COVER(n, 11)}
#define INSIDE(n) {STRING_MASK(n), {255, 255, 255, 255}}
#define OUTSIDE \
    {STRING_MASK(VIEW_PREFIX), {255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}}

static const ViewMask VIEW_MASKS[16] = {
    INSIDE(0), INSIDE(1), INSIDE(2), INSIDE(3), INSIDE(4), INSIDE(5), INSIDE(6), INSIDE(7),
    INSIDE(8), INSIDE(9), INSIDE(10), INSIDE(11), INSIDE(12), INSIDE(0), INSIDE(0), OUTSIDE};

/* With these masks each view has its string's place, even of a short one. */
static const ViewMask PLACE_MASKS[16] = {
    OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE,
    OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE};
#undef COVER
#undef STRING_MASK
#undef INSIDE
#undef OUTSIDE

/* Write the view of `used` bytes at `p`, from which 16 bytes can be read. `number` and `offset` are
 * its place. `null` is all ones for a null, which has no bytes: the size in its view becomes -1. */
static inline void put_wide_view(char* out, const ViewMask* masks, const uint8_t* p, uint32_t used,
                                 uint32_t null, uint32_t number, uint32_t offset) {
    uint32_t is_long = (uint32_t)((int32_t)(VIEW_INLINE - used) >> 31);
    const ViewMask* mask = masks + ((used | is_long) & 15);
#if defined(__SSE2__)
    uint64_t place = (uint64_t)offset << 32 | number;
    __m128i bytes = _mm_slli_si128(_mm_loadu_si128((const __m128i*)p), VIEW_PREFIX);
    __m128i sizes = _mm_set_epi64x((int64_t)place, (int64_t)(uint64_t)(used | null));
    bytes = _mm_and_si128(bytes, _mm_loadu_si128((const __m128i*)mask->string));
    sizes = _mm_and_si128(sizes, _mm_loadu_si128((const __m128i*)mask->place));
    _mm_storeu_si128((__m128i*)out, _mm_or_si128(bytes, sizes));
#else
    uint32_t words[4] = {used | null, 0, number, offset};
    const uint8_t* place = (const uint8_t*)words;
    for (int i = 0; i < VIEW_BYTES; i++) {
        uint8_t byte = i < VIEW_PREFIX ? 0 : p[i - VIEW_PREFIX];
        out[i] = (char)((byte & mask->string[i]) | (place[i] & mask->place[i]));
    }
#endif
}

/* Write the view of `used` bytes at `p`, which may be near `end`, the end of the readable bytes. */
static inline void put_view(char* out, const uint8_t* p, const uint8_t* end, uint32_t used,
                            uint32_t null, uint32_t number, uint32_t offset) {
    uint8_t bytes[VIEW_BYTES] = {0};
    if (end - p < VIEW_BYTES) {
        memcpy(bytes, p, used < VIEW_INLINE ? used : VIEW_INLINE);
        p = bytes;
    }
    put_wide_view(out, VIEW_MASKS, p, used, null, number, offset);
}
