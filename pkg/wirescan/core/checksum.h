/* CRC-32 (IEEE 802.3, as in zlib), CRC-32C (Castagnoli, RFC 3720 appendix B.4), and Adler-32.
 *
 * Both CRCs are bit-reflected and use one algorithm. Carry-less multiplication folds the input, 64
 * or 256 bytes a step, into 16 bytes that have the same remainder. Then the instruction for CRC-32C
 * or a Barrett reduction gives the checksum of these bytes. Where the hardware has no carry-less
 * multiplication, tables do everything. All constants are computed from the polynomial when the
 * module is loaded.
 *
 * Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ",
 * Intel 2009; its last section has the reduction of reflected bits.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define WIRESCAN_X86 1
#include <immintrin.h>
#endif

enum { FOLD_128, FOLD_256, FOLD_384, FOLD_512, FOLD_2048, FOLDS };
static const int FOLD_BITS[FOLDS] = {128, 256, 384, 512, 2048};

typedef struct crc_kind {
    uint32_t table[8][256];      /* table[k][b]: the remainder of byte b followed by k zero bytes */
    uint64_t fold[FOLDS][2];     /* multipliers that move 16 bytes ahead by FOLD_BITS */
    uint64_t fold_64;            /* multiplier that moves 4 bytes ahead by 64 bits */
    uint64_t barrett[2];         /* the polynomial, and the quotient of x^64 and the polynomial */
    int has_instruction;         /* true for CRC-32C: SSE4.2 has an instruction for it */
} crc_kind;

typedef uint32_t (*crc_update)(const crc_kind*, uint32_t state, const uint8_t*, size_t);

/* Return x^power mod P, reflected and shifted as the multiplier of a reflected operand must be. */
static uint64_t crc_power(uint32_t polynomial, int power) {
    uint32_t value = 0x80000000u;
    while (power--)
        value = (value >> 1) ^ (polynomial & (0u - (value & 1u)));
    return (uint64_t)value << 1;
}

/* Return the quotient of x^64 and P, reflected. */
static uint64_t crc_quotient(uint32_t polynomial) {
    uint64_t quotient = 1;
    uint32_t rest = polynomial;
    for (int bit = 1; bit <= 32; bit++) {
        quotient |= (uint64_t)(rest & 1u) << bit;
        rest = (rest >> 1) ^ (polynomial & (0u - (rest & 1u)));
    }
    return quotient;
}

static void crc_prepare(crc_kind* crc, uint32_t polynomial) {
    for (int byte = 0; byte < 256; byte++) {
        uint32_t value = (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (polynomial & (0u - (value & 1u)));
        crc->table[0][byte] = value;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc->table[k - 1][byte];
            crc->table[k][byte] = (before >> 8) ^ crc->table[0][before & 0xff];
        }
    crc->has_instruction = polynomial == 0x82f63b78u;
    for (int i = 0; i < FOLDS; i++) {
        crc->fold[i][0] = crc_power(polynomial, FOLD_BITS[i] + 32);
        crc->fold[i][1] = crc_power(polynomial, FOLD_BITS[i] - 32);
    }
    crc->fold_64 = crc_power(polynomial, 64);
    crc->barrett[0] = (uint64_t)polynomial << 1 | 1;
    crc->barrett[1] = crc_quotient(polynomial);
}

static uint32_t crc_portable(const crc_kind* crc, uint32_t state, const uint8_t* p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t low = state ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8
                                | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        state = crc->table[7][low & 0xff] ^ crc->table[6][(low >> 8) & 0xff]
              ^ crc->table[5][(low >> 16) & 0xff] ^ crc->table[4][low >> 24]
              ^ crc->table[3][p[4]] ^ crc->table[2][p[5]]
              ^ crc->table[1][p[6]] ^ crc->table[0][p[7]];
    }
    for (; n; p++, n--)
        state = (state >> 8) ^ crc->table[0][(state ^ *p) & 0xff];
    return state;
}

#ifdef WIRESCAN_X86

#define FOLD(crc, i) _mm_loadu_si128((const __m128i*)(crc)->fold[i])

#define HARDWARE __attribute__((target("pclmul,sse4.2")))

HARDWARE static inline __m128i crc_ahead(__m128i x, __m128i k) {
    return _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11));
}

/* CRC-32C by its instruction, eight bytes a step. This is the fastest path for few bytes, although
 * each step waits for the one before it.
 *
 * The last n < 8 bytes are one step too, without an unpredictable branch. They become the high
 * bytes of a word whose low bytes are zero. The bits of the state that this word does not reach are
 * added at the end. */
HARDWARE static inline uint32_t crc_instruction(uint32_t state, const uint8_t* p, size_t n) {
    uint64_t wide = state, word;
    if (n < 8) {
        for (; n; p++, n--)
            state = _mm_crc32_u8(state, *p);
        return state;
    }
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    unsigned rest = 8 * (unsigned)n;
    /* The shift by `shift + 1` is done in two steps, since C does not define a shift by 64. */
    unsigned shift = 63 - rest;
    memcpy(&word, p + n - 8, 8);
    word = (word & ~0ull << shift << 1) ^ wide << shift << 1;
    return (uint32_t)(_mm_crc32_u64(0, word) ^ wide >> rest);
}

/* Fold one block and the n < 16 bytes after it into one block. At least 16 bytes end at p + n.
 *
 * The first n bytes of the block move ahead. The other bytes and the n bytes after them are a whole
 * block. Shuffles by SHIFTS move bytes by any distance; 0x80 gives a zero. */
static const uint8_t SHIFTS[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

HARDWARE static inline __m128i crc_append(const crc_kind* crc, __m128i x, const uint8_t* p,
                                          size_t n) {
    __m128i up = _mm_loadu_si128((const __m128i*)(SHIFTS + n));
    __m128i down = _mm_loadu_si128((const __m128i*)(SHIFTS + 16 + n));
    __m128i last = _mm_loadu_si128((const __m128i*)(p + n - 16));
    __m128i rest = _mm_blendv_epi8(_mm_shuffle_epi8(x, down), last, down);
    return _mm_xor_si128(crc_ahead(_mm_shuffle_epi8(x, up), FOLD(crc, FOLD_128)), rest);
}

/* Reduce 16 bytes to their checksum: to 12 bytes, to 8 bytes, and then by Barrett's method. */
HARDWARE static inline uint32_t crc_reduce(const crc_kind* crc, __m128i x) {
    const __m128i low = _mm_set_epi32(0, 0, 0, -1);
    __m128i k = _mm_loadl_epi64((const __m128i*)&crc->fold_64);
    __m128i barrett = _mm_loadu_si128((const __m128i*)crc->barrett);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, FOLD(crc, FOLD_128), 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low), k, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, low), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, quotient), 1);
}

/* Finish a checksum from one folded block: fold 16 bytes a step, then the last bytes. At least 16
 * bytes come before p. */
HARDWARE static inline uint32_t crc_finish(const crc_kind* crc, __m128i x, const uint8_t* p,
                                           size_t n) {
    uint8_t block[16];
    for (; n >= 16; p += 16, n -= 16)
        x = _mm_xor_si128(crc_ahead(x, FOLD(crc, FOLD_128)), _mm_loadu_si128((const __m128i*)p));
    if (crc->has_instruction) {
        _mm_storeu_si128((__m128i*)block, x);
        return crc_instruction(crc_instruction(0, block, 16), p, n);
    }
    return crc_reduce(crc, n ? crc_append(crc, x, p, n) : x);
}

/* For fewer bytes than this the instruction is faster than folding. */
enum { FEW = 256 };

HARDWARE static uint32_t crc_pclmul(const crc_kind* crc, uint32_t state, const uint8_t* p,
                                    size_t n) {
    if (crc->has_instruction && n < FEW)
        return crc_instruction(state, p, n);
    if (n < 16)
        return crc_portable(crc, state, p, n);
    __m128i x = _mm_xor_si128(_mm_loadu_si128((const __m128i*)p), _mm_cvtsi32_si128((int)state));
    if (n < 64)
        return crc_finish(crc, x, p + 16, n - 16);
    __m128i y[3], k = FOLD(crc, FOLD_512);
    for (int i = 0; i < 3; i++)
        y[i] = _mm_loadu_si128((const __m128i*)(p + 16 * (i + 1)));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        x = _mm_xor_si128(crc_ahead(x, k), _mm_loadu_si128((const __m128i*)p));
        for (int i = 0; i < 3; i++)
            y[i] = _mm_xor_si128(crc_ahead(y[i], k),
                                 _mm_loadu_si128((const __m128i*)(p + 16 * (i + 1))));
    }
    x = _mm_xor_si128(crc_ahead(x, FOLD(crc, FOLD_384)), crc_ahead(y[0], FOLD(crc, FOLD_256)));
    x = _mm_xor_si128(x, _mm_xor_si128(crc_ahead(y[1], FOLD(crc, FOLD_128)), y[2]));
    return crc_finish(crc, x, p, n);
}

#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

WIDE static inline __m512i crc_ahead_wide(__m512i z, __m512i k, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(z, k, 0x00),
                                     _mm512_clmulepi64_epi128(z, k, 0x11), next, 0x96);
}

WIDE static uint32_t crc_vpclmul(const crc_kind* crc, uint32_t state, const uint8_t* p, size_t n) {
    if (n < 256)
        return crc_pclmul(crc, state, p, n);
    __m512i z[4], k = _mm512_broadcast_i32x4(FOLD(crc, FOLD_2048));
    for (int i = 0; i < 4; i++)
        z[i] = _mm512_loadu_si512(p + 64 * i);
    z[0] = _mm512_xor_si512(z[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256)
        for (int i = 0; i < 4; i++)
            z[i] = crc_ahead_wide(z[i], k, _mm512_loadu_si512(p + 64 * i));
    k = _mm512_broadcast_i32x4(FOLD(crc, FOLD_512));
    for (int i = 1; i < 4; i++)
        z[i] = crc_ahead_wide(z[i - 1], k, z[i]);
    for (; n >= 64; p += 64, n -= 64)
        z[3] = crc_ahead_wide(z[3], k, _mm512_loadu_si512(p));
    __m128i x = _mm512_extracti32x4_epi32(z[3], 3);
    x = _mm_xor_si128(x, crc_ahead(_mm512_extracti32x4_epi32(z[3], 0), FOLD(crc, FOLD_384)));
    x = _mm_xor_si128(x, crc_ahead(_mm512_extracti32x4_epi32(z[3], 1), FOLD(crc, FOLD_256)));
    x = _mm_xor_si128(x, crc_ahead(_mm512_extracti32x4_epi32(z[3], 2), FOLD(crc, FOLD_128)));
    return crc_finish(crc, x, p, n);
}
#endif

/* The implementations, the fastest last. */
enum { CRC_PORTABLE, CRC_PCLMUL, CRC_VPCLMUL, CRC_PATHS };

/* Return an implementation, or NULL where this processor lacks its instructions. */
static crc_update crc_path(int path) {
#ifdef WIRESCAN_X86
    __builtin_cpu_init();
    if (path == CRC_PCLMUL && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"))
        return crc_pclmul;
    if (path == CRC_VPCLMUL
            && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")
            && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"))
        return crc_vpclmul;
#endif
    return path == CRC_PORTABLE ? crc_portable : NULL;
}

/* Adler-32 (RFC 1950, section 9): a is 1 plus the sum of all bytes, and b is the sum of the values
 * of a. Both are modulo 65521. ADLER_MOST bytes can be added before a sum of 32 bits overflows. */
enum { ADLER_MOST = 5552 };

static uint32_t adler32_update(uint32_t state, const uint8_t* p, size_t n) {
    uint64_t a = state & 0xffff, b = state >> 16;
    while (n) {
        size_t count = n < ADLER_MOST ? n : ADLER_MOST;
        n -= count;
#if defined(__SSE2__)
        if (count >= 16) {
            const __m128i zero = _mm_setzero_si128();
            const __m128i first = _mm_set_epi16(9, 10, 11, 12, 13, 14, 15, 16);
            const __m128i second = _mm_set_epi16(1, 2, 3, 4, 5, 6, 7, 8);
            __m128i sums = zero, sums_before = zero, weighted = zero;
            uint32_t lanes[3][4];
            b += a * (count & ~(size_t)15);
            for (; count >= 16; count -= 16, p += 16) {
                __m128i bytes = _mm_loadu_si128((const __m128i*)p);
                sums_before = _mm_add_epi32(sums_before, sums);
                sums = _mm_add_epi32(sums, _mm_sad_epu8(bytes, zero));
                weighted = _mm_add_epi32(weighted, _mm_add_epi32(
                    _mm_madd_epi16(_mm_unpacklo_epi8(bytes, zero), first),
                    _mm_madd_epi16(_mm_unpackhi_epi8(bytes, zero), second)));
            }
            _mm_storeu_si128((__m128i*)lanes[0], sums);
            _mm_storeu_si128((__m128i*)lanes[1], sums_before);
            _mm_storeu_si128((__m128i*)lanes[2], weighted);
            a += (uint64_t)lanes[0][0] + lanes[0][2];
            b += 16 * ((uint64_t)lanes[1][0] + lanes[1][2]);
            b += (uint64_t)lanes[2][0] + lanes[2][1] + lanes[2][2] + lanes[2][3];
        }
#endif
        for (; count; count--) {
            a += *p++;
            b += a;
        }
        a %= 65521;
        b %= 65521;
    }
    return (uint32_t)(b << 16 | a);
}
