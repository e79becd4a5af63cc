/* Whole words: zig-zag varints out of them, and pairs of columns into them.
 *
 * A varint is base-128 groups, low group first; the top bit of a byte says that more follow. Zig-zag puts the sign into
 * the lowest bit, so what is wanted is mostly the other bits, its half. Where the length of a varint is foreseen,
 * because neighbouring frames are alike, branches are best: what follows need not wait for it. Elsewhere BMI2 picks
 * the groups without a branch. Both agree wherever both accept: what is longer than a word, or than four bytes where
 * 32 bits are due, is not accepted, and `used` becomes more than 8 then.
 */
#include <stddef.h>
#include <stdint.h>

/* A length, by branches: half of the varint at the low end of a word. A negative one is not accepted. */
static inline uint64_t foreseen_length(uint64_t word, size_t* used) {
    uint64_t two = ((word >> 1) & 0x3f) | ((word >> 2) & 0x1fc0);
    *used = word & 1 ? 64 : 2;
    if ((word & 0x8080) == 0x80)
        return two;
    *used -= 1;
    if (!(word & 0x80))
        return two & 0x3f;
    *used += word & 0x800000 ? 64 : 2;
    return two | ((word >> 3) & 0xfe000);
}

#if defined(__BMI2__) && defined(__x86_64__)
#include <immintrin.h>

#define GROUPS 0x7f7f7f7f7f7f7f7full
#define HALVES (GROUPS ^ 1)

/* The varint at the low end of a word: its half, and whether it is negative. */
static inline uint64_t short_half(uint64_t word, int* negative, size_t* used) {
    uint64_t stop = _tzcnt_u64(~word & ~GROUPS);
    *used = stop < 32 ? (stop + 1) >> 3 : 64;
    *negative = word & 1;
    return _pext_u64(_bzhi_u64(word, (unsigned)stop), HALVES);
}

/* Three in a word, behind its first byte: two numbers, and the half of the third. The last two are of 32 bits. */
static inline uint64_t short_halves(uint64_t word, int64_t* a, int64_t* b, int* negative, size_t* used) {
    uint64_t stops = ~word & ~GROUPS & ~0xffull, first, second, third, rest;
    first = _tzcnt_u64(stops);
    stops = _blsr_u64(stops);
    second = _tzcnt_u64(stops);
    third = _tzcnt_u64(_blsr_u64(stops));
    *a = (int64_t)(_pext_u64(_bzhi_u64(word, (unsigned)first), HALVES << 8) ^ (0 - (word >> 8 & 1)));
    rest = _bzhi_u64(word, (unsigned)second) >> ((first + 1) & 63);
    *b = (int64_t)(_pext_u64(rest, HALVES) ^ (0 - (rest & 1)));
    rest = _bzhi_u64(word, (unsigned)third) >> ((second + 1) & 63);
    *negative = rest & 1;
    /* A stop bit is the last of its byte; without a third one `third` is 64, and `used` becomes 9. A distance of 32 bits
     * or more is a varint that is not short. */
    *used = ((second - first) | (third - second)) < 32 ? (third + 8) >> 3 : 64;
    return _pext_u64(rest, HALVES);
}

#else

static inline uint64_t next_varint(uint64_t word, size_t* used) {
    word >>= 8 * (*used & 7);
    if (!(word & 0x80)) {
        *used += 1;
        return word & 0x7f;
    }
    if (!(word & 0x8000)) {
        *used += 2;
        return (word & 0x7f) | ((word >> 1) & 0x3f80);
    }
    *used += word & 0x800000 ? 64 : 3;
    return (word & 0x7f) | ((word >> 1) & 0x3f80) | ((word >> 2) & 0x1fc000);
}

static inline int64_t next_number(uint64_t word, size_t* used) {
    uint64_t varint = next_varint(word, used);
    return (int64_t)((varint >> 1) ^ (0 - (varint & 1)));
}

static inline uint64_t short_half(uint64_t word, int* negative, size_t* used) {
    uint64_t varint;
    *used = 0;
    varint = next_varint(word, used);
    *negative = varint & 1;
    return varint >> 1;
}

static inline uint64_t short_halves(uint64_t word, int64_t* a, int64_t* b, int* negative, size_t* used) {
    uint64_t varint;
    *used = 1;
    *a = next_number(word, used);
    *b = next_number(word, used);
    varint = next_varint(word, used);
    *negative = varint & 1;
    return varint >> 1;
}

#endif

/* These bytes will be read soon. A prefetch does not fault, so the address may lie behind the buffer. */
static inline void prefetch(const uint8_t* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address, 0, 2);
#else
    (void)address;
#endif
}
