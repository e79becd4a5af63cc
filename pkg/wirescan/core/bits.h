/* Whole words: zig-zag varints out of them, and pairs of columns into them.
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
