/* Operations on words of 64 bits: decode short zig-zag varints, find the gaps of text, and store
 * rows.
 *
 * A varint is base-128 groups, low group first. The top bit of a byte says that more bytes follow.
 * Zig-zag puts the sign into the lowest bit. The other bits are called the half here.
 *
 * Neighbouring frames are often alike. Then the layout of the varints in one word is learnt once,
 * and each next word is compared with it. Where the layout is the same, the halves are extracted
 * without a branch. With BMI2 each takes one instruction. `join_groups` reads varints whose sizes
 * follow no order, also without a branch.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if (defined(__BMI__) || defined(__BMI2__)) && defined(__x86_64__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif
/* RARE functions stay out of the loops, so that the loops keep their layouts in registers. */
#if defined(__GNUC__)
#define RARE __attribute__((noinline, cold, unused))
#else
#define RARE
#endif
/* Whether a condition holds that seldom does. The compiler keeps registers for the other case. */
#if defined(__GNUC__)
#define rarely(condition) __builtin_expect(!!(condition), 0)
#else
#define rarely(condition) (condition)
#endif

/* The layout of at most three consecutive varints in a word, each of at most four bytes. */
typedef struct {
    uint64_t mask;              /* the bits that end a varint or are its sign */
    uint64_t expected;          /* the values of these bits */
    uint64_t half[3];           /* the bits of each half */
    uint64_t sign[3];           /* all ones where the varint is negative, else 0 */
    unsigned shift[3];          /* the first bit of each varint */
    size_t used;                /* bytes up to the end of the last varint */
} VarintLayout;

/* Return a layout that no word matches. */
static inline VarintLayout unknown(void) {
    VarintLayout shape = {0};
    shape.expected = 1;
    return shape;
}

/* Return the layout of `count` varints that start at byte `at` of a word. Where a varint is longer
 * than four bytes or leaves the word, the layout is unknown and its `used` is 0. */
static RARE VarintLayout learn(uint64_t word, unsigned at, unsigned count) {
    VarintLayout shape = {0};
    for (unsigned i = 0; i < count; i++) {
        unsigned last = at;
        while (last < 8 && word >> (8 * last) & 0x80)
            last++;
        if (last > 7 || last - at > 3)
            return unknown();
        shape.shift[i] = 8 * at;
        shape.sign[i] = 0 - (word >> shape.shift[i] & 1);
        shape.mask |= 1ull << shape.shift[i];
        for (; at <= last; at++) {
            shape.mask |= 0x80ull << (8 * at);
            shape.half[i] |= 0x7full << (8 * at);
        }
        shape.half[i] ^= 1ull << shape.shift[i];
    }
    shape.expected = word & shape.mask;
    shape.used = at;
    return shape;
}

/* Return whether the varints in a word have this layout. */
static inline int matches(uint64_t word, const VarintLayout* shape) {
    return (word & shape->mask) == shape->expected;
}

/* Return the half of varint i in a word that matches the layout. */
static inline uint64_t extract(uint64_t word, const VarintLayout* shape, int i) {
#if defined(__BMI2__) && defined(__x86_64__)
    return _pext_u64(word, shape->half[i]);
#else
    word = (word & shape->half[i]) >> shape->shift[i];
    return (word >> 1 & 0x3f) | (word >> 2 & 0x1fc0)
         | (word >> 3 & 0xfe000) | (word >> 4 & 0x7f00000);
#endif
}

/* Bitmaps of the bytes that end words in text: bit i is byte i. `blank` has the spaces and tabs,
 * `line` the line feeds. */
typedef struct {
    uint64_t blank, line;
} Gaps;

/* Return the gaps in the 64 bytes at an address. */
static inline Gaps gaps(const uint8_t* at) {
    Gaps bitmaps = {0, 0};
#if defined(__SSE2__)
    const __m128i space = _mm_set1_epi8(' ');
    const __m128i tab = _mm_set1_epi8('\t');
    const __m128i feed = _mm_set1_epi8('\n');
    for (int i = 0; i < 64; i += 16) {
        __m128i block = _mm_loadu_si128((const __m128i*)(at + i));
        __m128i blank = _mm_or_si128(_mm_cmpeq_epi8(block, space), _mm_cmpeq_epi8(block, tab));
        bitmaps.blank |= (uint64_t)(uint32_t)_mm_movemask_epi8(blank) << i;
        bitmaps.line |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(block, feed)) << i;
    }
#else
    for (int i = 0; i < 64; i++) {
        bitmaps.blank |= (uint64_t)(at[i] == ' ' || at[i] == '\t') << i;
        bitmaps.line |= (uint64_t)(at[i] == '\n') << i;
    }
#endif
    return bitmaps;
}

/* Return the number of the lowest bit that is set, or 64 where none is. */
static inline unsigned lowest(uint64_t word) {
#if defined(__BMI__) && defined(__x86_64__)
    return (unsigned)_tzcnt_u64(word);
#elif defined(__GNUC__)
    return word ? (unsigned)__builtin_ctzll(word) : 64;
#else
    unsigned i = 0;
    while (i < 64 && !(word >> i & 1))
        i++;
    return i;
#endif
}

/* Join the 7-bit groups in the bytes of a word. The top bit of each byte must be clear. */
static inline uint64_t groups(uint64_t word) {
    word = (word & 0x007f007f007f007full) | (word & 0x7f007f007f007f00ull) >> 1;
    word = (word & 0x00003fff00003fffull) | (word & 0x3fff00003fff0000ull) >> 2;
    return (word & 0x0fffffffull) | (word & 0x0fffffff00000000ull) >> 4;
}

/* Join the 7-bit groups of the varint in those bytes of a word that are in `mask` and not in
 * `before`. Both masks are low bits, in whole bytes. */
static inline uint64_t join_groups(uint64_t word, uint64_t before, uint64_t mask) {
    mask &= ~before & 0x7f7f7f7f7f7f7f7full;
#if defined(__BMI2__) && defined(__x86_64__)
    return _pext_u64(word, mask);
#else
    return groups((word & mask) >> (lowest(~before) & 63));
#endif
}

/* Halve a zig-zag code, and return its sign: all ones where it is negative, else 0. The shift moves
 * the sign into the carry, and `sbb` spreads it. gcc would use four instructions. */
static inline uint64_t take_sign(uint64_t* code) {
#if defined(__x86_64__) && defined(__GNUC__)
    uint64_t sign;
    __asm__("shrq %0\n\tsbbq %1, %1" : "+r"(*code), "=r"(sign) : : "cc");
    return sign;
#else
    uint64_t sign = 0 - (*code & 1);
    *code >>= 1;
    return sign;
#endif
}

/* Return the word that two neighbouring columns of 32 bits are in a row. */
static inline uint64_t pack_pair(uint32_t first, uint32_t second) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (uint64_t)first << 32 | second;
#else
    return first | (uint64_t)second << 32;
#endif
}

/* Clear a row of `size` bytes. gcc turns a memset of a constant size above 80 bytes into a string
 * instruction, which starts slowly. So a constant size is cleared in parts of 64 bytes. The bytes
 * after the first 192 are one part. */
static inline void clear_row(void* row, size_t size) {
    char* at = (char*)row;
#if defined(__GNUC__)
    if (__builtin_constant_p(size)) {
        if (size > 192) {
            memset(at + 192, 0, size - 192);
            size = 192;
        }
        if (size > 128) {
            memset(at + 128, 0, size - 128);
            size = 128;
        }
        if (size > 64) {
            memset(at + 64, 0, size - 64);
            size = 64;
        }
    }
#endif
    memset(at, 0, size);
}

/* Return the last word of the Head of a row without a fault. To store the columns and load the word
 * would take longer: a processor waits for a load of several stores. */
static inline uint64_t pack_common(uint32_t parent, uint16_t buffer, uint8_t kind) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return pack_pair(parent, (uint32_t)buffer << 16 | (uint32_t)kind << 8);
#else
    return pack_pair(parent, buffer | (uint32_t)kind << 16);
#endif
}

/* Write a word of a row. With `bypass` the store bypasses the caches: then the processor need not
 * read the cache line that it overwrites. */
static inline void store_word(char* at, uint64_t word, int bypass) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (bypass) {
        __builtin_ia32_movnti64((long long*)at, (long long)word);
        return;
    }
#endif
    (void)bypass;
    memcpy(at, &word, sizeof word);
}

/* Make stores that bypassed the caches visible to other threads. */
static inline void store_fence(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_sfence();
#endif
}

/* Prefetch bytes that will be read soon. A prefetch does not fault, so the address may be outside
 * the buffer. It goes to the first-level cache: some processors of AMD drop most prefetches that go
 * only to the second. gcc deletes calls of functions that only prefetch. The empty assembly prevents
 * this. */
static inline void prefetch(const uint8_t* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 3);
    __asm__ volatile("");
#else
    (void)address;
#endif
}
