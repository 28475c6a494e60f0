// The vector functions of the resize for NEON, which every 64-bit ARM has; resize_avx2.h has the same for x86.
//
// The bits are those of AVX2: products and sums of integers are exact, so their order does not matter.

#include <arm_neon.h>

#define HAS_RESIZE 1
#define VECTORS

enum {
    VECTOR = 16,          // bytes that the vertical pass takes at a time
    NONE = 255,           // as an index of a table: gives zero
};

// Whether this CPU has the instructions.
static int has_vectors(void) { return 1; }

// Adds GROUP pixels of a row, times their weights, to the sums of the channels; the fourth sum is not used.
//
// 16 bytes are five pixels and a third of one.  A table lays out two pixels as four 16-bit numbers each, and one
// multiplication with a single weight serves all channels of a pixel.
static inline int32x4_t add_pixels(int32x4_t sum, const uint8_t *pixels, int16x4_t weights, uint8x16_t pixels_0_1,
                                   uint8x16_t pixels_2_3) {
    const uint8x16_t bytes = vld1q_u8(pixels);
    const int16x8_t near = vreinterpretq_s16_u8(vqtbl1q_u8(bytes, pixels_0_1));
    const int16x8_t far = vreinterpretq_s16_u8(vqtbl1q_u8(bytes, pixels_2_3));
    sum = vmlal_lane_s16(sum, vget_low_s16(near), weights, 0);
    sum = vmlal_high_lane_s16(sum, near, weights, 1);
    sum = vmlal_lane_s16(sum, vget_low_s16(far), weights, 2);
    return vmlal_high_lane_s16(sum, far, weights, 3);
}

// Writes a pixel of one row and of the next.  Narrowing clamps to [0, 255].
static inline void put_pixels(uint8_t *out, int64_t out_stride, int32x4_t one, int32x4_t next, int32x4_t shift) {
    const int16x4_t low = vqmovn_s32(vshlq_s32(one, shift)), high = vqmovn_s32(vshlq_s32(next, shift));
    const uint32x2_t pixels = vreinterpret_u32_u8(vqmovun_s16(vcombine_s16(low, high)));
    const uint32_t first = vget_lane_u32(pixels, 0), second = vget_lane_u32(pixels, 1);
    // Four bytes for three: the next pixel writes over the fourth.
    memcpy(out, &first, sizeof first);
    memcpy(out + out_stride, &second, sizeof second);
}

// Resizes four rows of colours at a time: columns [left, left + width) of the result, mirrored if `flip`.
static void resize_four_color_rows(const uint8_t *const rows[GROUP], uint8_t *out, int64_t out_stride, int64_t left,
                                   int64_t width, int64_t flip, const Taps *taps) {
    static const uint8_t layout[2][16] = {
        {0, NONE, 1, NONE, 2, NONE, NONE, NONE, 3, NONE, 4, NONE, 5, NONE, NONE, NONE},
        {6, NONE, 7, NONE, 8, NONE, NONE, NONE, 9, NONE, 10, NONE, 11, NONE, NONE, NONE},
    };
    const uint8x16_t pixels_0_1 = vld1q_u8(layout[0]), pixels_2_3 = vld1q_u8(layout[1]);
    const int32x4_t half = vdupq_n_s32(half_of(taps));
    const int32x4_t shift = vdupq_n_s32(-taps->precision);  // to the left; a negative one goes to the right
    for (int64_t p = 0; p < width; p++) {
        const int64_t x = left + (flip ? width - 1 - p : p);
        const int16_t *weights = taps->weights + x * taps->room;
        int32x4_t sum[GROUP] = {half, half, half, half};
        int64_t at = COLORS * taps->first[x];
        for (int64_t j = 0; j < taps->count[x]; j += GROUP, at += GROUP * COLORS) {
            const int16x4_t four = vld1_s16(weights + j);
            for (int q = 0; q < GROUP; q++) sum[q] = add_pixels(sum[q], rows[q] + at, four, pixels_0_1, pixels_2_3);
        }
        put_pixels(out + COLORS * p, out_stride, sum[0], sum[1], shift);
        put_pixels(out + COLORS * p + 2 * out_stride, out_stride, sum[2], sum[3], shift);
    }
}

// The same for rows of grey: the four sums of a row are of every fourth pixel.
static void resize_four_grey_rows(const uint8_t *const rows[GROUP], uint8_t *out, int64_t out_stride, int64_t left,
                                  int64_t width, int64_t flip, const Taps *taps) {
    for (int64_t p = 0; p < width; p++) {
        const int64_t x = left + (flip ? width - 1 - p : p);
        const int16_t *weights = taps->weights + x * taps->room;
        int32x4_t sum[GROUP] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
        int64_t at = taps->first[x];
        for (int64_t j = 0; j < taps->count[x]; j += GROUP, at += GROUP) {
            const int16x4_t four = vld1_s16(weights + j);
            for (int q = 0; q < GROUP; q++) {
                uint32_t pixels;
                memcpy(&pixels, rows[q] + at, sizeof pixels);
                const uint16x8_t numbers = vmovl_u8(vcreate_u8(pixels));
                sum[q] = vmlal_s16(sum[q], vreinterpret_s16_u16(vget_low_u16(numbers)), four);
            }
        }
        for (int q = 0; q < GROUP; q++) {
            const int32_t whole = (vaddvq_s32(sum[q]) + half_of(taps)) >> taps->precision;
            out[p + q * out_stride] = (uint8_t)(whole < 0 ? 0 : whole > 255 ? 255 : whole);
        }
    }
}

// Resizes the rows `from`, `from` + stride, ... to `out`, for VECTOR bytes of an output row, whose weights are `row`'s.
static inline void resize_columns(const uint8_t *from, int64_t stride, uint8_t *out, const Taps *taps, int64_t row) {
    const int16_t *weights = taps->weights + row * taps->room;
    const int32x4_t half = vdupq_n_s32(half_of(taps)), shift = vdupq_n_s32(-taps->precision);
    int32x4_t sum[4] = {half, half, half, half};
    for (int64_t j = 0; j < taps->count[row]; j++) {
        const uint8x16_t bytes = vld1q_u8(from + j * stride);
        const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
        const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
        sum[0] = vmlal_n_s16(sum[0], vget_low_s16(low), weights[j]);
        sum[1] = vmlal_high_n_s16(sum[1], low, weights[j]);
        sum[2] = vmlal_n_s16(sum[2], vget_low_s16(high), weights[j]);
        sum[3] = vmlal_high_n_s16(sum[3], high, weights[j]);
    }
    for (int q = 0; q < 4; q++) sum[q] = vshlq_s32(sum[q], shift);
    const int16x8_t words_0_1 = vqmovn_high_s32(vqmovn_s32(sum[0]), sum[1]);
    const int16x8_t words_2_3 = vqmovn_high_s32(vqmovn_s32(sum[2]), sum[3]);
    vst1q_u8(out, vqmovun_high_s16(vqmovun_s16(words_0_1), words_2_3));
}
