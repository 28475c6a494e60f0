// Colours of uint8 images [pixels, 3], in the bits of torchvision's kernels (torchvision/transforms/v2/functional/
// _color.py), whose steps each round to float32; torch adds a multiple by a fused multiply-add.
//
// The loops are plain, for the compiler to turn into vectors: BLOCK pixels at a time, with the channels apart.  Results
// may be written over the image.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vectors.h"

enum {
    COLORS = 3,
    BLOCK = 256,          // pixels whose channels lie apart in the cache
    LEVELS = 256,         // values of a channel
    RUN = 96,             // bytes after which the channels of a vector repeat
    SOFT_CENTER = 5,      // the soft kernel: 3 x 3 ones, with this in the middle,
    SOFT_SUM = 13,        // and their sum
};

typedef struct {
    float red[BLOCK], green[BLOCK], blue[BLOCK];
} Channels;

VECTORS static void part(const uint8_t *pixels, int64_t n, Channels *to) {
    for (int64_t i = 0; i < n; i++) {
        to->red[i] = pixels[COLORS * i];
        to->green[i] = pixels[COLORS * i + 1];
        to->blue[i] = pixels[COLORS * i + 2];
    }
}

// Cuts values in [0, 256) off to whole numbers.
VECTORS static void join(const Channels *from, int64_t n, uint8_t *pixels) {
    uint8_t red[BLOCK], green[BLOCK], blue[BLOCK];
    for (int64_t i = 0; i < n; i++) red[i] = (uint8_t)(int32_t)from->red[i];
    for (int64_t i = 0; i < n; i++) green[i] = (uint8_t)(int32_t)from->green[i];
    for (int64_t i = 0; i < n; i++) blue[i] = (uint8_t)(int32_t)from->blue[i];
    for (int64_t i = 0; i < n; i++) {
        pixels[COLORS * i] = red[i];
        pixels[COLORS * i + 1] = green[i];
        pixels[COLORS * i + 2] = blue[i];
    }
}

static inline VECTORS float clamp(float x, float high) {
    x = x > 0 ? x : 0;
    return x < high ? x : high;
}

static inline VECTORS float luma(float red, float green, float blue) {
    return fmaf(blue, 0.114f, fmaf(green, 0.587f, red * 0.2989f));
}

// Whether this CPU runs what follows.
int torchdali_colors(void) { return has_vectors(); }

// Writes the grey image, float32 [pixels], whole numbers.
VECTORS void torchdali_grey(const uint8_t *pixels, int64_t n, float *grey) {
    Channels block;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t count = n - start < BLOCK ? n - start : BLOCK;
        part(pixels + COLORS * start, count, &block);
        for (int64_t i = 0; i < count; i++)
            grey[start + i] = floorf(luma(block.red[i], block.green[i], block.blue[i]));
    }
}

// Writes the grey image into all channels.
VECTORS void torchdali_grayscale(const uint8_t *pixels, int64_t n, uint8_t *out) {
    Channels block;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t count = n - start < BLOCK ? n - start : BLOCK;
        uint8_t *to = out + COLORS * start;
        uint8_t grey[BLOCK];
        part(pixels + COLORS * start, count, &block);
        for (int64_t i = 0; i < count; i++)
            grey[i] = (uint8_t)(int32_t)luma(block.red[i], block.green[i], block.blue[i]);
        for (int64_t i = 0; i < count; i++) to[COLORS * i] = to[COLORS * i + 1] = to[COLORS * i + 2] = grey[i];
    }
}

// Mixes each number with another one: x * ratio + other * rest.
VECTORS void torchdali_mix(const uint8_t *pixels, int64_t n, float ratio, float other, float rest, uint8_t *out) {
    for (int64_t i = 0; i < COLORS * n; i++)
        out[i] = (uint8_t)(int32_t)clamp(fmaf(other, rest, pixels[i] * ratio), 255);
}

// Mixes each pixel with its grey level, as above.
VECTORS void torchdali_mix_grey(const uint8_t *pixels, int64_t n, float ratio, float rest, uint8_t *out) {
    Channels block;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t count = n - start < BLOCK ? n - start : BLOCK;
        part(pixels + COLORS * start, count, &block);
        for (int64_t i = 0; i < count; i++) {
            const float grey = floorf(luma(block.red[i], block.green[i], block.blue[i]));
            block.red[i] = clamp(fmaf(grey, rest, block.red[i] * ratio), 255);
            block.green[i] = clamp(fmaf(grey, rest, block.green[i] * ratio), 255);
            block.blue[i] = clamp(fmaf(grey, rest, block.blue[i] * ratio), 255);
        }
        join(&block, count, out + COLORS * start);
    }
}

// Turns the hue by a shift in turns: to HSV, and back.
VECTORS void torchdali_hue(const uint8_t *pixels, int64_t n, float shift, uint8_t *out) {
    const float unit = (float)(1.0 / 255), sixth = (float)(1.0 / 6), most = (float)(255 + 1.0 - 1e-3);
    Channels block;
    for (int64_t start = 0; start < n; start += BLOCK) {
        const int64_t count = n - start < BLOCK ? n - start : BLOCK;
        part(pixels + COLORS * start, count, &block);
        for (int64_t i = 0; i < count; i++) {
            const float r = block.red[i] * unit, g = block.green[i] * unit, b = block.blue[i] * unit;
            const float rg = r > g ? r : g, low_rg = r < g ? r : g;
            const float high = rg > b ? rg : b, low = low_rg < b ? low_rg : b;
            const float range = high - low, divisor = high == low ? 1 : range;
            const float saturation = range / (high == low ? 1 : high);
            const float rc = (high - r) / divisor, gc = (high - g) / divisor, bc = (high - b) / divisor;
            // In sixths, by the largest channel; the first of them counts.
            const float by_red = bc - gc, by_green = rc + 2 - bc, by_blue = gc + 4 - rc;
            const float not_red = high == g ? by_green : by_blue, sixths = high == r ? by_red : not_red;
            const float moved = sixths * sixth + 1, turned = moved - truncf(moved) + shift;
            const float signed_hue = turned - truncf(turned), next = signed_hue + 1;
            const float six = (signed_hue < 0 ? next : signed_hue) * 6, side = floorf(six), rest = six - side;
            const float colored = saturation * rest, pale = 1 - saturation;
            const float p = clamp(pale * high, 1), q = clamp((1 - colored) * high, 1);
            const float t = clamp((colored + pale) * high, 1);
            // The sides of the hexagon, 0 to 5; 6 is 0 again.
            float red = high, green = t, blue = p;
            red = side == 1 ? q : red;
            red = side == 2 || side == 3 ? p : red;
            red = side == 4 ? t : red;
            green = side == 1 || side == 2 ? high : green;
            green = side == 3 ? q : green;
            green = side == 4 || side == 5 ? p : green;
            blue = side == 2 ? t : blue;
            blue = side == 3 || side == 4 ? high : blue;
            blue = side == 5 ? q : blue;
            block.red[i] = red * most;
            block.green[i] = green * most;
            block.blue[i] = blue * most;
        }
        join(&block, count, out + COLORS * start);
    }
}

// Replaces each number by that of its channel's table.
static void look_up(const uint8_t *pixels, int64_t n, const uint8_t table[COLORS][LEVELS], uint8_t *out) {
    for (int64_t i = 0; i < n; i++) {
        out[COLORS * i] = table[0][pixels[COLORS * i]];
        out[COLORS * i + 1] = table[1][pixels[COLORS * i + 1]];
        out[COLORS * i + 2] = table[2][pixels[COLORS * i + 2]];
    }
}

// Puts the channels into another order: channel c of the result is that of the image at places[c].
void torchdali_permute(const uint8_t *pixels, int64_t n, const int64_t *places, uint8_t *out) {
    const int64_t first = places[0], second = places[1], third = places[2];
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *pixel = pixels + COLORS * i;
        const uint8_t red = pixel[first], green = pixel[second], blue = pixel[third];
        out[COLORS * i] = red;
        out[COLORS * i + 1] = green;
        out[COLORS * i + 2] = blue;
    }
}

// Finds the smallest and the largest number of each channel.
VECTORS static void find_limits(const uint8_t *pixels, int64_t n, uint8_t low[COLORS], uint8_t high[COLORS]) {
    uint8_t lows[RUN], highs[RUN];
    memset(lows, 255, RUN);
    memset(highs, 0, RUN);
    int64_t i = 0;
    for (; i + RUN <= COLORS * n; i += RUN)
        for (int j = 0; j < RUN; j++) {
            lows[j] = pixels[i + j] < lows[j] ? pixels[i + j] : lows[j];
            highs[j] = pixels[i + j] > highs[j] ? pixels[i + j] : highs[j];
        }
    for (int j = 0; i + j < COLORS * n; j++) {
        lows[j] = pixels[i + j] < lows[j] ? pixels[i + j] : lows[j];
        highs[j] = pixels[i + j] > highs[j] ? pixels[i + j] : highs[j];
    }
    for (int c = 0; c < COLORS; c++) {
        low[c] = 255;
        high[c] = 0;
        for (int j = c; j < RUN; j += COLORS) {
            low[c] = lows[j] < low[c] ? lows[j] : low[c];
            high[c] = highs[j] > high[c] ? highs[j] : high[c];
        }
    }
}

// Stretches each channel between its smallest and its largest number; one of a single number stays.
VECTORS void torchdali_stretch(const uint8_t *pixels, int64_t n, uint8_t *out) {
    uint8_t low[COLORS], high[COLORS], table[COLORS][LEVELS];
    find_limits(pixels, n, low, high);
    for (int c = 0; c < COLORS; c++) {
        const int flat = low[c] == high[c];
        const float scale = flat ? 1 : (float)(high[c] - low[c]) * (float)(1.0 / 255), from = flat ? 0 : low[c];
        for (int x = 0; x < LEVELS; x++) table[c][x] = (uint8_t)(int32_t)clamp(((float)x - from) / scale, 255);
    }
    look_up(pixels, n, (const uint8_t(*)[LEVELS])table, out);
}

// Makes the histogram of each channel flat, by Pillow's rule.
VECTORS void torchdali_equalize(const uint8_t *pixels, int64_t n, uint8_t *out) {
    int32_t counts[2][COLORS][LEVELS];  // of every other pixel: two equal ones in a row need not wait for each other
    uint8_t table[COLORS][LEVELS];
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < COLORS; c++) counts[i & 1][c][pixels[COLORS * i + c]]++;
    for (int c = 0; c < COLORS; c++) {
        int64_t last = 0, below = 0;  // pixels of the largest number that occurs, and those of smaller numbers than x
        for (int x = 0; x < LEVELS; x++) {
            const int64_t count = counts[0][c][x] + counts[1][c][x];
            last = count ? count : last;
        }
        const int64_t step = (n - last) / (LEVELS - 1);
        for (int x = 0; x < LEVELS; x++) {
            const int64_t level = x && step ? (below + step / 2) / step : 0;
            table[c][x] = step ? (uint8_t)(level < 255 ? level : 255) : (uint8_t)x;
            below += counts[0][c][x] + counts[1][c][x];
        }
    }
    look_up(pixels, n, (const uint8_t(*)[LEVELS])table, out);
}

// Mixes the inner pixels with a soft image, x + (soft - x) * rest; the outermost ones stay.  The result lies elsewhere.
//
// The soft image's numbers are rounded from thirteenths, none of which lies in the middle between two whole numbers.
VECTORS void torchdali_sharpen(const uint8_t *pixels, int64_t rows, int64_t columns, float rest, uint8_t *out) {
    const int64_t stride = COLORS * columns;
    memcpy(out, pixels, rows * stride);
    for (int64_t y = 1; y < rows - 1; y++) {
        const uint8_t *above = pixels + (y - 1) * stride, *row = above + stride, *below = row + stride;
        uint8_t *to = out + y * stride;
        for (int64_t j = COLORS; j < stride - COLORS; j++) {
            const uint16_t sides = above[j - COLORS] + above[j] + above[j + COLORS] + row[j - COLORS] +
                                   row[j + COLORS] + below[j - COLORS] + below[j] + below[j + COLORS];
            const uint16_t sum = sides + SOFT_CENTER * row[j];
            const uint16_t soft = (uint16_t)(2 * sum + SOFT_SUM) / (2 * SOFT_SUM);
            const float x = row[j];
            to[j] = (uint8_t)(int32_t)clamp(fmaf((float)soft - x, rest, x), 255);
        }
    }
}
