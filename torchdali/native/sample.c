// Pixels of uint8 images [rows, columns, channels] at any places: the bits of torch's `grid_sample`
// (aten/src/ATen/native/cpu/GridSamplerKernel.cpp, as compilers fuse it) over float32, and of torchvision's
// `_apply_grid_transform` around it, which mixes in what lies outside and rounds.  The places are given, or follow from a
// matrix, by products and sums that round one by one.

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "vectors.h"

enum {
    BLOCK = 256,          // pixels whose places are found together
    MOST_CHANNELS = 4,
    CORNERS = 4,
};

// One image and its result; `_Sampling` in sample.py has the same fields.
typedef struct {
    const uint8_t *pixels;           // or NULL: only `places` are written
    int64_t rows, columns, channels;
    uint8_t *out;                    // uint8 [out_rows, out_columns, channels]
    int64_t out_rows, out_columns;
    const float *grid;               // (x, y) of each pixel, from -1 to 1 over the image; or NULL:
    const float *matrix;             // x is a * column + b * row + c, and y is d * column + e * row + f,
    const float *divisor;            // divided by g * column + h * row + i, less one; NULL: not divided
    float first_column, first_row;   // numbers of the first pixel
    int64_t bilinear;                // else the nearest pixel
    const float *fill;               // of what lies outside, for each channel; NULL: zeros
    int32_t *places;                 // the numbers of the nearest pixels, or -1, are written there; or NULL
    float *exact;                    // of a bilinear result, what is rounded is written there too; or NULL
} Sampling;

// Finds where pixels [start, start + count) of a row come from.
VECTORS static void find_places(const Sampling *s, int64_t row, int64_t start, int64_t count, float *x, float *y) {
    if (s->grid) {
        const float *grid = s->grid + 2 * (row * s->out_columns + start);
        for (int64_t i = 0; i < count; i++) {
            x[i] = grid[2 * i];
            y[i] = grid[2 * i + 1];
        }
    } else {
        const float *m = s->matrix, down = s->first_row + (float)row, first = s->first_column + (float)start;
        const float by_row_x = down * m[1], by_row_y = down * m[4];
        for (int64_t i = 0; i < count; i++) {
            const float right = first + (float)(int32_t)i;
            x[i] = right * m[0] + by_row_x + m[2];
            y[i] = right * m[3] + by_row_y + m[5];
        }
        if (s->divisor) {
            const float *d = s->divisor, by_row = down * d[1];
            for (int64_t i = 0; i < count; i++) {
                const float below = (first + (float)(int32_t)i) * d[0] + by_row + d[2];
                x[i] = x[i] / below - 1;
                y[i] = y[i] / below - 1;
            }
        }
    }
    const float half_width = (float)s->columns / 2, half_height = (float)s->rows / 2;
    for (int64_t i = 0; i < count; i++) {
        x[i] = fmaf(x[i] + 1, half_width, -0.5f);
        y[i] = fmaf(y[i] + 1, half_height, -0.5f);
    }
}

static inline VECTORS void take_nearest(const Sampling *s, int64_t first, int64_t count, float *x, float *y,
                                        const uint8_t *filled, const int64_t channels) {
    const float width = (float)s->columns, height = (float)s->rows;
    int32_t column[BLOCK], row[BLOCK];  // the row is -1 outside
    for (int64_t i = 0; i < count; i++) {
        const float right = rintf(x[i]), down = rintf(y[i]);
        const int inside = (right > -1) & (right < width) & (down > -1) & (down < height);
        column[i] = (int32_t)(inside ? right : 0);
        row[i] = (int32_t)(inside ? down : -1);
    }
    if (s->places) {
        int32_t *places = s->places + first;
        for (int64_t i = 0; i < count; i++) places[i] = row[i] < 0 ? -1 : row[i] * (int32_t)s->columns + column[i];
    }
    if (!s->pixels) return;
    uint8_t *out = s->out + first * channels;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = (row[i] * s->columns + column[i]) * channels;
        const uint8_t *from = row[i] < 0 ? filled : s->pixels + place;
        for (int64_t c = 0; c < channels; c++) out[i * channels + c] = from[c];
    }
}

// Four pixels around each place, their weights, and 1 for those inside the image, else 0.
typedef struct {
    float weight[CORNERS][BLOCK], inside[CORNERS][BLOCK];
    int32_t left[BLOCK], right[BLOCK], top[BLOCK], bottom[BLOCK];  // moved into the image
    uint8_t number[CORNERS][MOST_CHANNELS][BLOCK];
} Around;

static inline VECTORS float within(float place, float size) {
    const float above = place > 0 ? place : 0;  // also of what is no number
    return above < size - 1 ? above : size - 1;
}

VECTORS static void find_corners(const Sampling *s, int64_t count, const float *x, const float *y, Around *around) {
    const float width = (float)s->columns, height = (float)s->rows;
    for (int64_t i = 0; i < count; i++) {
        const float left = floorf(x[i]), top = floorf(y[i]), east = x[i] - left, south = y[i] - top;
        const float west = 1 - east, north = 1 - south;
        around->weight[0][i] = north * west;
        around->weight[1][i] = north * east;
        around->weight[2][i] = south * west;
        around->weight[3][i] = south * east;
        const int in_left = (left > -1) & (left < width), in_right = (left > -2) & (left < width - 1);
        const int in_top = (top > -1) & (top < height), in_bottom = (top > -2) & (top < height - 1);
        around->inside[0][i] = (float)(in_top & in_left);
        around->inside[1][i] = (float)(in_top & in_right);
        around->inside[2][i] = (float)(in_bottom & in_left);
        around->inside[3][i] = (float)(in_bottom & in_right);
        around->left[i] = (int32_t)within(left, width);
        around->right[i] = (int32_t)within(left + 1, width);
        around->top[i] = (int32_t)within(top, height);
        around->bottom[i] = (int32_t)within(top + 1, height);
    }
}

// Adds up four numbers times their weights.
static inline VECTORS float mix(float first, float second, float third, float fourth, const Around *around, int64_t i) {
    const float two = fmaf(second, around->weight[1][i], first * around->weight[0][i]);
    return fmaf(fourth, around->weight[3][i], fmaf(third, around->weight[2][i], two));
}

static inline VECTORS void take_bilinear(const Sampling *s, int64_t first, int64_t count, const float *x,
                                         const float *y, const int64_t channels) {
    const int64_t stride = s->columns * channels;
    uint8_t *out = s->out + first * channels;
    float *exact = s->exact ? s->exact + first * channels : NULL;
    Around around;
    find_corners(s, count, x, y, &around);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *top = s->pixels + around.top[i] * stride, *bottom = s->pixels + around.bottom[i] * stride;
        const int64_t left = around.left[i] * channels, right = around.right[i] * channels;
        for (int64_t c = 0; c < channels; c++) {
            around.number[0][c][i] = top[left + c];
            around.number[1][c][i] = top[right + c];
            around.number[2][c][i] = bottom[left + c];
            around.number[3][c][i] = bottom[right + c];
        }
    }
    for (int64_t c = 0; c < channels; c++) {
        float values[BLOCK];
        uint8_t rounded[BLOCK];
        for (int64_t i = 0; i < count; i++) {
            values[i] = mix((float)around.number[0][c][i] * around.inside[0][i],
                            (float)around.number[1][c][i] * around.inside[1][i],
                            (float)around.number[2][c][i] * around.inside[2][i],
                            (float)around.number[3][c][i] * around.inside[3][i], &around, i);
        }
        if (s->fill) {
            const float fill = s->fill[c];
            for (int64_t i = 0; i < count; i++) {
                const float share = mix(around.inside[0][i], around.inside[1][i], around.inside[2][i],
                                        around.inside[3][i], &around, i);
                values[i] = (values[i] - fill) * share + fill;
            }
        }
        for (int64_t i = 0; exact && i < count; i++) exact[i * channels + c] = values[i];
        for (int64_t i = 0; i < count; i++) {
            const float value = values[i] > 0 ? values[i] : 0;  // 0 where a place is no number
            rounded[i] = (uint8_t)(int32_t)rintf(value);
        }
        for (int64_t i = 0; i < count; i++) out[i * channels + c] = rounded[i];
    }
}

// Takes pixels [first, first + count) of the result.
static inline VECTORS void take(const Sampling *s, int64_t first, int64_t count, float *x, float *y,
                                const uint8_t *filled, const int64_t channels) {
    if (s->bilinear) {
        take_bilinear(s, first, count, x, y, channels);
    } else {
        take_nearest(s, first, count, x, y, filled, channels);
    }
}

// Samples one image, of at most MOST_CHANNELS channels and 2^22 rows and columns.
VECTORS void torchdali_sample(const Sampling *s) {
    float x[BLOCK], y[BLOCK];
    uint8_t filled[MOST_CHANNELS] = {0};
    for (int64_t c = 0; s->fill && c < s->channels; c++) filled[c] = (uint8_t)(int32_t)rintf(s->fill[c]);
    for (int64_t row = 0; row < s->out_rows; row++)
        for (int64_t start = 0; start < s->out_columns; start += BLOCK) {
            const int64_t count = s->out_columns - start < BLOCK ? s->out_columns - start : BLOCK;
            const int64_t first = row * s->out_columns + start;
            find_places(s, row, start, count, x, y);
            if (s->channels == 3) {
                take(s, first, count, x, y, filled, 3);  // the compiler unrolls the loops over channels
            } else {
                take(s, first, count, x, y, filled, s->channels);
            }
        }
}

// Whether this CPU runs it.
int torchdali_samples(void) { return has_vectors(); }
