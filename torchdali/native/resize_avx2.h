// The vector functions of the resize for AVX2; resize_neon.h has the same for ARM.

#include <immintrin.h>

#define HAS_RESIZE 1
#define VECTORS __attribute__((target("avx2")))

enum {
    VECTOR = 32,          // bytes that the vertical pass takes at a time
};

// Whether this CPU has the instructions.
static int has_vectors(void) { return __builtin_cpu_supports("avx2") != 0; }

static inline int32_t two_weights(const int16_t *weights) {
    int32_t both;
    memcpy(&both, weights, sizeof both);
    return both;
}

static inline int32_t four_pixels(const uint8_t *pixels) {
    int32_t all;
    memcpy(&all, pixels, sizeof all);
    return all;
}

static inline VECTORS __m256i two_rows(const uint8_t *one, const uint8_t *other) {
    const __m128i low = _mm_loadu_si128((const void *)one), high = _mm_loadu_si128((const void *)other);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

static inline VECTORS void put_pixel(uint8_t *out, int pixel) { memcpy(out, &pixel, sizeof pixel); }

// Resizes four rows of colours at a time: columns [left, left + width) of the result, mirrored if `flip`.
//
// A vector holds 16 bytes of two rows, five pixels and a third of one.  A shuffle lays the same channel of two
// neighbours side by side as 16-bit numbers, and one madd multiplies them with two weights and adds them up.
VECTORS static void resize_four_color_rows(const uint8_t *const rows[GROUP], uint8_t *out, int64_t out_stride,
                                           int64_t left, int64_t width, int64_t flip, const Taps *taps) {
    const __m256i pixels_0_1 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i pixels_2_3 =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const __m256i half = _mm256_set1_epi32(half_of(taps));
    const __m128i shift = _mm_cvtsi32_si128(taps->precision);
    for (int64_t p = 0; p < width; p++) {
        const int64_t x = left + (flip ? width - 1 - p : p);
        const int16_t *weights = taps->weights + x * taps->room;
        __m256i sum_0_1 = half, sum_2_3 = half;
        int64_t at = COLORS * taps->first[x];
        for (int64_t j = 0; j < taps->count[x]; j += GROUP, at += GROUP * COLORS) {
            const __m256i near = _mm256_set1_epi32(two_weights(weights + j));
            const __m256i far = _mm256_set1_epi32(two_weights(weights + j + 2));
            const __m256i a = two_rows(rows[0] + at, rows[1] + at), b = two_rows(rows[2] + at, rows[3] + at);
            sum_0_1 = _mm256_add_epi32(sum_0_1, _mm256_madd_epi16(_mm256_shuffle_epi8(a, pixels_0_1), near));
            sum_0_1 = _mm256_add_epi32(sum_0_1, _mm256_madd_epi16(_mm256_shuffle_epi8(a, pixels_2_3), far));
            sum_2_3 = _mm256_add_epi32(sum_2_3, _mm256_madd_epi16(_mm256_shuffle_epi8(b, pixels_0_1), near));
            sum_2_3 = _mm256_add_epi32(sum_2_3, _mm256_madd_epi16(_mm256_shuffle_epi8(b, pixels_2_3), far));
        }
        // Packing clamps to [0, 255].  The low half has rows 0 and 2, the high half rows 1 and 3.
        const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(sum_0_1, shift), _mm256_sra_epi32(sum_2_3, shift));
        const __m256i bytes = _mm256_packus_epi16(words, _mm256_setzero_si256());
        const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
        // Four bytes for three: the next pixel writes over the fourth.
        put_pixel(out + COLORS * p, _mm_cvtsi128_si32(even));
        put_pixel(out + COLORS * p + out_stride, _mm_cvtsi128_si32(odd));
        put_pixel(out + COLORS * p + 2 * out_stride, _mm_extract_epi32(even, 1));
        put_pixel(out + COLORS * p + 3 * out_stride, _mm_extract_epi32(odd, 1));
    }
}

// The same for rows of grey: a vector holds four pixels of each row, and a madd leaves two sums for each.
VECTORS static void resize_four_grey_rows(const uint8_t *const rows[GROUP], uint8_t *out, int64_t out_stride,
                                          int64_t left, int64_t width, int64_t flip, const Taps *taps) {
    const __m256i half = _mm256_set1_epi32(half_of(taps));
    const __m128i shift = _mm_cvtsi32_si128(taps->precision);
    for (int64_t p = 0; p < width; p++) {
        const int64_t x = left + (flip ? width - 1 - p : p);
        const int16_t *weights = taps->weights + x * taps->room;
        __m256i sum = _mm256_setzero_si256();
        int64_t at = taps->first[x];
        for (int64_t j = 0; j < taps->count[x]; j += GROUP, at += GROUP) {
            const __m128i pixels = _mm_setr_epi32(four_pixels(rows[0] + at), four_pixels(rows[1] + at),
                                                  four_pixels(rows[2] + at), four_pixels(rows[3] + at));
            const __m256i four = _mm256_broadcastq_epi64(_mm_loadl_epi64((const void *)(weights + j)));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_cvtepu8_epi16(pixels), four));
        }
        // The low half has rows 0 and 1, the high half rows 2 and 3.
        const __m256i whole = _mm256_sra_epi32(_mm256_add_epi32(_mm256_hadd_epi32(sum, sum), half), shift);
        const __m256i words = _mm256_packs_epi32(whole, whole), bytes = _mm256_packus_epi16(words, words);
        const int first = _mm256_extract_epi16(bytes, 0), second = _mm256_extract_epi16(bytes, 8);
        out[p] = (uint8_t)first;
        out[p + out_stride] = (uint8_t)(first >> 8);
        out[p + 2 * out_stride] = (uint8_t)second;
        out[p + 3 * out_stride] = (uint8_t)(second >> 8);
    }
}

// Resizes the rows `from`, `from` + stride, ... to `out`, for VECTOR bytes of an output row, whose weights are `row`'s.
//
// Rows two by two: their bytes are interleaved, and there is one madd for each quarter.
VECTORS static inline void resize_columns(const uint8_t *from, int64_t stride, uint8_t *out, const Taps *taps,
                                          int64_t row) {
    const int16_t *weights = taps->weights + row * taps->room;
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi32(half_of(taps));
    const __m128i shift = _mm_cvtsi32_si128(taps->precision);
    __m256i sum[4] = {half, half, half, half};
    for (int64_t j = 0; j < taps->count[row]; j += 2) {
        const __m256i both = _mm256_set1_epi32(two_weights(weights + j));
        const __m256i a = _mm256_loadu_si256((const void *)(from + j * stride));
        const __m256i b = _mm256_loadu_si256((const void *)(from + (j + 1) * stride));
        const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), both));
        sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), both));
        sum[2] = _mm256_add_epi32(sum[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), both));
        sum[3] = _mm256_add_epi32(sum[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), both));
    }
    for (int q = 0; q < 4; q++) sum[q] = _mm256_sra_epi32(sum[q], shift);
    // Unpacking and packing work within halves alike, so the bytes come out in their order.
    const __m256i words_0_1 = _mm256_packs_epi32(sum[0], sum[1]), words_2_3 = _mm256_packs_epi32(sum[2], sum[3]);
    _mm256_storeu_si256((void *)out, _mm256_packus_epi16(words_0_1, words_2_3));
}
