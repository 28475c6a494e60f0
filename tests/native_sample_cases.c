// As native_cases.c: random places of random images through the kernel that samples.
#include "../torchdali/native/sample.c"

#include "native_cases.h"

static float real(float low, float high) { return low + (high - low) * (float)below(1 << 20) / (1 << 20); }

int main(void) {
    enum { CASES = 3000, LARGEST = 40, WIDEST = 600 };
    uint64_t sum = EMPTY;
    if (!torchdali_samples()) return 1;
    for (int k = 0; k < CASES; k++) {
        Sampling s = {.rows = 1 + below(LARGEST), .columns = 1 + below(LARGEST), .channels = 1 + below(MOST_CHANNELS)};
        s.out_rows = 1 + below(k % 8 ? LARGEST : 3), s.out_columns = 1 + below(k % 8 ? LARGEST : WIDEST);
        s.bilinear = below(2);
        float matrix[6], divisor[3] = {real(-0.2f, 0.2f), real(-0.2f, 0.2f), 1}, fill[MOST_CHANNELS];
        for (int j = 0; j < 6; j++) matrix[j] = j % 3 == 2 ? real(-1, 1) : real(-0.2f, 0.2f);
        for (int c = 0; c < MOST_CHANNELS; c++) fill[c] = real(0, 255);
        const int64_t bytes = s.rows * s.columns * s.channels, n = s.out_rows * s.out_columns;
        uint8_t *pixels = malloc(bytes);
        float *grid = malloc(2 * n * sizeof(float));
        for (int64_t j = 0; j < bytes; j++) pixels[j] = (uint8_t)below(256);
        for (int64_t j = 0; j < 2 * n; j++) grid[j] = below(50) ? real(-1.3f, 1.3f) : below(2) ? NAN : INFINITY;
        s.pixels = pixels, s.out = malloc(n * s.channels);
        s.grid = k % 3 ? NULL : grid, s.matrix = matrix, s.divisor = k % 3 == 1 ? divisor : NULL;
        s.first_column = 0.5f - (float)below(20), s.first_row = 0.5f - (float)below(20);
        s.fill = below(2) ? fill : NULL;
        torchdali_sample(&s);
        sum = add_bytes(sum, s.out, n * s.channels);
        free(s.out);
        free(grid);
        free(pixels);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
