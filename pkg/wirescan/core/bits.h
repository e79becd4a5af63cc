/* Whole words: zig-zag varints and the gaps of text out of them, and pairs of columns into them.
 *
 * A varint is base-128 groups, low group first; the top bit of a byte says that more follow. Zig-zag puts the sign into
 * the lowest bit; the other bits are its half. Neighbouring frames are mostly alike: so how the varints of one lie is
 * learnt once, and each next one is only asked whether it is the same. Then its halves are picked without a branch, with
 * BMI2 in an instruction each.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__BMI2__) && defined(__x86_64__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__GNUC__)               /* out of the way of the loops, whose shapes stay in registers */
#define RARE __attribute__((noinline, cold, unused))
#else
#define RARE
#endif

/* At most three varints, one after another in a word; each of at most four bytes, so of 28 bits. */
typedef struct {
    uint64_t asked, answer;     /* the bits that end a varint or are its sign, and what they are here */
    uint64_t half[3];           /* the bits of each half */
    uint64_t sign[3];           /* all ones where it is negative */
    unsigned shift[3];          /* where it begins */
    size_t used;                /* bytes, up to the end of the last one */
} Shape;

/* Nothing is learnt yet: no word lies so. */
static inline Shape unknown(void) {
    Shape shape = {0};
    shape.answer = 1;
    return shape;
}

/* How `count` varints lie in a word from byte `at` on; unknown, with nothing used, where they are longer. */
static RARE Shape learn(uint64_t word, unsigned at, unsigned count) {
    Shape shape = {0};
    for (unsigned i = 0; i < count; i++) {
        unsigned last = at;
        while (last < 8 && word >> (8 * last) & 0x80)
            last++;
        if (last > 7 || last - at > 3)
            return unknown();
        shape.shift[i] = 8 * at;
        shape.sign[i] = 0 - (word >> shape.shift[i] & 1);
        shape.asked |= 1ull << shape.shift[i];
        for (; at <= last; at++) {
            shape.asked |= 0x80ull << (8 * at);
            shape.half[i] |= 0x7full << (8 * at);
        }
        shape.half[i] ^= 1ull << shape.shift[i];
    }
    shape.answer = word & shape.asked;
    shape.used = at;
    return shape;
}

/* Whether the varints in a word lie so. */
static inline int lies(uint64_t word, const Shape* shape) {
    return (word & shape->asked) == shape->answer;
}

/* The half of varint i in a word of a known shape. */
static inline uint64_t half(uint64_t word, const Shape* shape, int i) {
#if defined(__BMI2__) && defined(__x86_64__)
    return _pext_u64(word, shape->half[i]);
#else
    word = (word & shape->half[i]) >> shape->shift[i];
    return (word >> 1 & 0x3f) | (word >> 2 & 0x1fc0) | (word >> 3 & 0xfe000) | (word >> 4 & 0x7f00000);
#endif
}

/* What ends words in text: bit i is byte i. `line` has the line feeds, `blank` the spaces and tabs. */
typedef struct {
    uint64_t blank, line;
} Gaps;

/* The gaps among 64 bytes. */
static inline Gaps gaps(const uint8_t* at) {
    Gaps found = {0, 0};
#if defined(__SSE2__)
    const __m128i space = _mm_set1_epi8(' '), tab = _mm_set1_epi8('\t'), feed = _mm_set1_epi8('\n');
    for (int i = 0; i < 64; i += 16) {
        __m128i part = _mm_loadu_si128((const __m128i*)(at + i));
        __m128i blank = _mm_or_si128(_mm_cmpeq_epi8(part, space), _mm_cmpeq_epi8(part, tab));
        found.blank |= (uint64_t)(uint32_t)_mm_movemask_epi8(blank) << i;
        found.line |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(part, feed)) << i;
    }
#else
    for (int i = 0; i < 64; i++) {
        found.blank |= (uint64_t)(at[i] == ' ' || at[i] == '\t') << i;
        found.line |= (uint64_t)(at[i] == '\n') << i;
    }
#endif
    return found;
}

/* The lowest bit that is set, of a word that has one. */
static inline unsigned lowest(uint64_t word) {
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(word);
#else
    unsigned i = 0;
    while (!(word >> i & 1))
        i++;
    return i;
#endif
}

/* The groups of seven bits in the bytes of a word, put together; the top bits of the bytes are clear. */
static inline uint64_t groups(uint64_t word) {
    word = (word & 0x007f007f007f007full) | (word & 0x7f007f007f007f00ull) >> 1;
    word = (word & 0x00003fff00003fffull) | (word & 0x3fff00003fff0000ull) >> 2;
    return (word & 0x0fffffffull) | (word & 0x0fffffff00000000ull) >> 4;
}

/* Two columns of 32 bits, as the word that they are in a row. */
static inline uint64_t beside(uint32_t first, uint32_t second) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (uint64_t)first << 32 | second;
#else
    return first | (uint64_t)second << 32;
#endif
}

/* Write a word of a row. `past`: past the caches, which saves reading the line that is written over. */
static inline void put(char* at, uint64_t word, int past) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (past) {
        __builtin_ia32_movnti64((long long*)at, (long long)word);
        return;
    }
#endif
    (void)past;
    memcpy(at, &word, sizeof word);
}

/* Other threads see what was written past the caches. */
static inline void settle(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_ia32_sfence();
#endif
}

/* These bytes will be read soon. A prefetch does not fault, so the address may lie behind the buffer. */
static inline void prefetch(const uint8_t* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
#else
    (void)address;
#endif
}
