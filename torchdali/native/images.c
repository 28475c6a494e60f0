// Images on their way into a batch: window, resize, flip and normalise in one pass, straight into the batch's row.
//
// The resize gives the bits of torch's own uint8 kernels (aten/src/ATen/native/cpu/UpSampleKernelAVXAntialias.h, after
// Pillow-SIMD): the horizontal pass first, rounded to uint8, then the vertical one, with 16-bit weights.  The normalise
// gives those of torch's copy, mul, mul and add, each of which rounds: compile with -ffp-contract=off.

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 4,            // rows and taps that the horizontal pass takes at a time
    OVERREAD = 16,        // bytes that the horizontal pass may read after a row's last pixel
    COLORS = 3,           // channels of an image that can be resized, if it is not grey
    MAX_PRECISION = 22,   // bits of a weight, at most, as torch has it
    WEIGHT_BITS = 15,     // the largest weight stays below 2^15
};

// One image and its row; `Picture` in images.py has the same fields.  Sizes are in pixels, (top, left) of windows too.
typedef struct {
    int64_t pixels;                               // address of uint8 [rows, columns, channels]
    int64_t stride;                               // bytes from row to row
    int64_t rows, columns;
    int64_t top, left, height, width;             // the window; only without a resize may it lie outside
    int64_t full_height, full_width;              // what the window is resized to
    int64_t out_top, out_left;                    // what is taken of that: this corner,
    int64_t out_height, out_width;                // and this size
    int64_t flip_rows, flip_columns;
} Picture;

typedef struct {
    uint8_t *batch;          // uint8 or float32 [N, ?, ?, channels]
    int64_t image_bytes;     // from image to image
    int64_t row_bytes;       // from row to row
    int64_t channels;
    int64_t bicubic;
    int64_t normalise;       // to float32: (x * unit) * scale + bias
    float unit;
    const float *scale, *bias;   // one number for each channel
    const uint8_t *fill;         // of what lies outside, one number for each channel
} Batch;

// The weights of one dimension: output i is the sum of inputs first[i], first[i] + 1, ... with weights[i * room + j].
typedef struct {
    int64_t room;            // weights of an output, a multiple of GROUP; zeros fill it up
    int precision;           // the weights are integers in units of 2^-precision
    int64_t *first, *count;
    int16_t *weights;
} Taps;

// What is added to a sum before it is shifted right by the precision, so that it is rounded.
static inline int32_t half_of(const Taps *taps) { return taps->precision ? 1 << (taps->precision - 1) : 0; }

// A CPU's vectors: what the horizontal pass does with four rows, the vertical one with VECTOR bytes of a row, and the
// attribute of functions that use them.
#if defined(__x86_64__)
#include "resize_avx2.h"
#elif defined(__aarch64__) && !defined(__AARCH64EB__)
#include "resize_neon.h"
#else
#define HAS_RESIZE 0
#define VECTORS
enum { VECTOR = 1 };
static int has_vectors(void) { return 1; }
#endif

// Memory that the images of one call share: fresh memory costs a page fault for every 4 KiB.
typedef struct {
    uint8_t *bytes;
    int64_t size;
} Scratch;

static uint8_t *reserve(Scratch *scratch, int64_t size) {
    if (size > scratch->size) {
        free(scratch->bytes);
        scratch->bytes = malloc(size);
        scratch->size = scratch->bytes ? size : 0;
    }
    return scratch->bytes;
}

static double filter_at(double x, int64_t bicubic) {
    const double a = -0.5;
    x = fabs(x);
    if (!bicubic) return x < 1 ? 1 - x : 0;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    return 0;
}

static void free_taps(Taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->weights);
}

// Computes the weights as torch does, in double, for all outputs: the precision depends on the largest of them.
static int make_taps(Taps *taps, int64_t inputs, int64_t outputs, int64_t bicubic) {
    const double scale = (double)inputs / outputs, reach = bicubic ? 2 : 1;
    const double support = scale >= 1 ? reach * scale : reach, inverse = scale >= 1 ? 1 / scale : 1;
    const int64_t most = (int64_t)ceil(support) * 2 + 1, room = (most + GROUP - 1) / GROUP * GROUP;
    double largest = 0;
    double *exact = malloc(sizeof(double) * outputs * room);
    taps->room = room;
    taps->first = malloc(sizeof(int64_t) * outputs);
    taps->count = malloc(sizeof(int64_t) * outputs);
    taps->weights = calloc(outputs * room, sizeof(int16_t));
    if (!exact || !taps->first || !taps->count || !taps->weights) {
        free(exact);
        return 0;
    }
    for (int64_t i = 0; i < outputs; i++) {
        const double center = scale * (i + 0.5);
        double total = 0, *row = exact + i * room;
        int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
        if (low < 0) low = 0;
        if (high > inputs) high = inputs;
        int64_t count = high - low;
        if (count < 0) count = 0;
        if (count > most) count = most;
        for (int64_t j = 0; j < count; j++) {
            row[j] = filter_at((j + low - center + 0.5) * inverse, bicubic);
            total += row[j];
        }
        for (int64_t j = 0; j < count && total != 0; j++) {
            row[j] /= total;
            if (row[j] > largest) largest = row[j];
        }
        taps->first[i] = low;
        taps->count[i] = count;
    }
    int precision = 0;
    while (precision < MAX_PRECISION && (int)(0.5 + largest * (1 << (precision + 1))) < 1 << WEIGHT_BITS) precision++;
    taps->precision = precision;
    for (int64_t i = 0; i < outputs; i++)
        for (int64_t j = 0; j < taps->count[i]; j++) {
            const double weight = exact[i * room + j] * (1 << precision);
            taps->weights[i * room + j] = (int16_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
    free(exact);
    return 1;
}

// Writes a row of numbers into the batch; `scale` and `bias` have a number for each of them.
VECTORS static void put_row(const Batch *to, uint8_t *restrict out, const uint8_t *restrict line, int64_t n,
                            const float *restrict scale, const float *restrict bias) {
    if (!to->normalise) {
        memcpy(out, line, n);
        return;
    }
    float *restrict numbers = (float *)out;
    const float unit = to->unit;
    for (int64_t j = 0; j < n; j++) {
        const float value = (float)line[j] * unit;
        const float scaled = value * scale[j];
        numbers[j] = scaled + bias[j];
    }
}

#if HAS_RESIZE

// Resizes one image; `line` holds a row of the result, to the next multiple of VECTOR.
VECTORS static int resize(const Picture *from, const Batch *to, uint8_t *out, uint8_t *line, const float *scale,
                          const float *bias, Scratch *scratch) {
    void (*const four_rows)(const uint8_t *const[GROUP], uint8_t *, int64_t, int64_t, int64_t, int64_t, const Taps *) =
        to->channels == 1 ? resize_four_grey_rows : resize_four_color_rows;
    Taps across = {0}, down = {0};
    int done = 0;
    if (!make_taps(&across, from->width, from->full_width, to->bicubic)) goto end;
    if (!make_taps(&down, from->height, from->full_height, to->bicubic)) goto end;

    // Only the rows that the result needs, in groups of four; those of the last group are copied with room after them,
    // since the horizontal pass reads over their end.
    const int64_t n = to->channels * from->out_width, bytes = to->channels * from->width;
    const int64_t last = from->out_top + from->out_height - 1;
    const int64_t begin = down.first[from->out_top], end = down.first[last] + down.count[last];
    const int64_t stride = (n + VECTOR + VECTOR - 1) / VECTOR * VECTOR;
    // A count that is odd reads a row more, whatever it holds, with weight zero.
    uint8_t *tail = reserve(scratch, GROUP * (bytes + OVERREAD) + (end - begin + 2 * GROUP) * stride);
    if (!tail) goto end;
    uint8_t *middle = tail + GROUP * (bytes + OVERREAD);
    const uint8_t *window = (const uint8_t *)from->pixels + from->top * from->stride + from->left * to->channels;
    for (int64_t y = begin; y < end; y += GROUP) {
        const uint8_t *rows[GROUP];
        const int inside = from->stride * (y + GROUP - 1) + bytes + OVERREAD <=
                           from->stride * (from->height - 1) + bytes && y + GROUP <= from->height;
        for (int64_t q = 0; q < GROUP; q++) {
            const int64_t row = y + q < from->height ? y + q : from->height - 1;
            rows[q] = window + from->stride * row;
            if (!inside) rows[q] = memcpy(tail + q * (bytes + OVERREAD), rows[q], bytes);
        }
        four_rows(rows, middle + (y - begin) * stride, stride, from->out_left, from->out_width, from->flip_columns,
                  &across);
    }

    for (int64_t y = 0; y < from->out_height; y++) {
        const int64_t row = from->out_top + (from->flip_rows ? from->out_height - 1 - y : y);
        const uint8_t *first = middle + (down.first[row] - begin) * stride;
        for (int64_t j = 0; j < n; j += VECTOR) resize_columns(first + j, stride, line + j, &down, row);
        put_row(to, out + y * to->row_bytes, line, n, scale, bias);
    }
    done = 1;
end:
    free_taps(&across);
    free_taps(&down);
    return done;
}

#endif

// Writes n pixels from the last to the first.
static void mirror(const uint8_t *pixels, int64_t n, int64_t channels, uint8_t *out) {
    if (channels != COLORS) {
        for (int64_t x = 0; x < n; x++)
            for (int64_t c = 0; c < channels; c++) out[x * channels + c] = pixels[(n - 1 - x) * channels + c];
        return;
    }
    // Four bytes at once: the first is written over by the next pixel, and those at the ends have none.  The pixels are
    // read forwards, since memory is not fetched ahead for who reads backwards.
    uint8_t *last = out + (n - 1) * COLORS;
    memcpy(last, pixels, COLORS);
    for (int64_t x = 1; x < n - 1; x++) memcpy(last - x * COLORS - 1, pixels + x * COLORS - 1, COLORS + 1);
    if (n > 1) memcpy(out, pixels + (n - 1) * COLORS, COLORS);
}

// Takes the window of one image as it is, with fill outside.
static void take(const Picture *from, const Batch *to, uint8_t *out, uint8_t *line, const uint8_t *filled,
                 const float *scale, const float *bias) {
    const int64_t channels = to->channels, width = from->width, n = channels * width;
    const int64_t right = from->left + width < from->columns ? from->left + width : from->columns;
    const int64_t left = from->left > 0 ? from->left : 0;
    for (int64_t y = 0; y < from->height; y++) {
        const int64_t row = from->top + (from->flip_rows ? from->height - 1 - y : y);
        const int none = row < 0 || row >= from->rows || right <= left;
        const int whole = !none && right - left == width;
        const uint8_t *pixels = (const uint8_t *)from->pixels + (none ? 0 : row * from->stride + left * channels);
        if (!whole) memcpy(line, filled, n);
        if (none) {
            put_row(to, out + y * to->row_bytes, line, n, scale, bias);
            continue;
        }
        if (whole && !from->flip_columns) {
            put_row(to, out + y * to->row_bytes, pixels, n, scale, bias);
            continue;
        }
        const int64_t before = left - from->left, inside = right - left;
        if (!from->flip_columns) {
            memcpy(line + before * channels, pixels, inside * channels);
        } else {
            mirror(pixels, inside, channels, line + (width - before - inside) * channels);
        }
        put_row(to, out + y * to->row_bytes, line, n, scale, bias);
    }
}

// Whether this CPU and this build can resize.
int torchdali_resizes(void) { return HAS_RESIZE && has_vectors(); }

// Whether this CPU runs the rest.
int torchdali_runs(void) { return has_vectors(); }

// Writes images start, start + step, ... of `pictures` into their rows.  Returns 0, or 1 where memory ran out.
int torchdali_write_images(const Picture *pictures, int64_t start, int64_t stop, int64_t step, const Batch *to) {
    Scratch scratch = {0};
    int64_t widest = 0;
    for (int64_t i = start; i < stop; i += step)
        if (pictures[i].out_width > widest) widest = pictures[i].out_width;
    const int64_t n = widest * to->channels;
    float *scale = malloc(sizeof(float) * (n + 1)), *bias = malloc(sizeof(float) * (n + 1));
    uint8_t *line = malloc(n + VECTOR), *filled = malloc(n + 1);
    int failed = !scale || !bias || !line || !filled;
    for (int64_t j = 0; j < n && !failed; j++) {
        scale[j] = to->scale[j % to->channels];
        bias[j] = to->bias[j % to->channels];
        filled[j] = to->fill[j % to->channels];
    }
    for (int64_t i = start; i < stop && !failed; i += step) {
        const Picture *from = pictures + i;
        uint8_t *out = to->batch + i * to->image_bytes;
        if (from->height == from->full_height && from->width == from->full_width &&
            from->height == from->out_height && from->width == from->out_width) {
            take(from, to, out, line, filled, scale, bias);
            continue;
        }
#if HAS_RESIZE
        failed = !resize(from, to, out, line, scale, bias, &scratch);
#else
        failed = 1;
#endif
    }
    free(scale);
    free(bias);
    free(line);
    free(filled);
    free(scratch.bytes);
    return failed;
}
