// A filter over uint8 images [rows, columns, channels] whose edges are reflected: the bits of torchvision's
// `gaussian_blur_image`, that is of torch's `conv2d` by depth over float32, which adds up products in the order of the
// filter's numbers, each by a fused multiply-add; and of rounding.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vectors.h"

enum { BLOCK = 32 };  // pixels of a row whose sums stay in registers

// The place in a row of n that one outside it mirrors; it lies less than n outside.
static int64_t reflected(int64_t place, int64_t n) {
    place = place < 0 ? -place : place;
    return place < n ? place : 2 * (n - 1) - place;
}

// Filters BLOCK pixels of a row; `from` is the first one's upper left neighbour.
VECTORS static void filter_block(const float *restrict from, int64_t stride, const float *restrict filter,
                                 int64_t height, int64_t width, float *restrict out) {
    float sums[BLOCK] = {0};
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++) {
            const float weight = filter[i * width + j], *numbers = from + i * stride + j;
            for (int k = 0; k < BLOCK; k++) sums[k] = fmaf(weight, numbers[k], sums[k]);
        }
    memcpy(out, sums, sizeof sums);
}

// Filters one image.  The filter's height and width are odd, and at most 2 * rows - 1 and 2 * columns - 1.  `scratch` has
// room for (rows + height) * (columns + width + BLOCK) numbers.
VECTORS void torchdali_blur(const uint8_t *pixels, int64_t rows, int64_t columns, int64_t channels,
                            const float *filter, int64_t height, int64_t width, float *scratch, uint8_t *out) {
    const int64_t up = height / 2, left = width / 2, stride = columns + width + BLOCK;
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t y = 0; y < rows + height - 1; y++) {
            const uint8_t *row = pixels + reflected(y - up, rows) * columns * channels + c;
            float *to = scratch + y * stride;
            for (int64_t x = 0; x < left; x++) to[x] = row[reflected(x - left, columns) * channels];
            for (int64_t x = 0; x < columns; x++) to[left + x] = row[x * channels];
            for (int64_t x = columns + left; x < columns + width - 1; x++)
                to[x] = row[reflected(x - left, columns) * channels];
            memset(to + columns + width - 1, 0, (BLOCK + 1) * sizeof *to);
        }
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < columns; x += BLOCK) {
                const int64_t count = columns - x < BLOCK ? columns - x : BLOCK;
                uint8_t *to = out + (y * columns + x) * channels + c;
                float sums[BLOCK];
                filter_block(scratch + y * stride + x, stride, filter, height, width, sums);
                for (int64_t k = 0; k < count; k++) to[k * channels] = (uint8_t)(int32_t)rintf(sums[k]);
            }
    }
}

// Filters float32 [rows + height - 1, columns + width - 1], whose rows lie `stride` apart, at least
// columns + width - 1 + BLOCK, into [rows, columns].
VECTORS void torchdali_filter(const float *numbers, int64_t stride, int64_t rows, int64_t columns, const float *filter,
                              int64_t height, int64_t width, float *out) {
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x += BLOCK) {
            const int64_t count = columns - x < BLOCK ? columns - x : BLOCK;
            float sums[BLOCK];
            filter_block(numbers + y * stride + x, stride, filter, height, width, sums);
            memcpy(out + y * columns + x, sums, count * sizeof *out);
        }
}

// Whether this CPU runs it.
int torchdali_blurs(void) { return has_vectors(); }
