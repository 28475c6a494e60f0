// As native_cases.c: random filters over random images.
#include "../torchdali/native/blur.c"

#include "native_cases.h"

int main(void) {
    enum { CASES = 400, LARGEST = 90, WIDEST = 9 };
    uint64_t sum = EMPTY;
    if (!torchdali_blurs()) return 1;
    for (int k = 0; k < CASES; k++) {
        const int64_t rows = 1 + below(LARGEST), columns = 1 + below(LARGEST), channels = 1 + below(4);
        const int64_t height = 1 + 2 * below(rows < WIDEST ? rows : WIDEST);
        const int64_t width = 1 + 2 * below(columns < WIDEST ? columns : WIDEST);
        const int64_t bytes = rows * columns * channels, n = height * width;
        uint8_t *pixels = malloc(bytes), *out = malloc(bytes);
        float *filter = malloc(n * sizeof *filter);
        float *scratch = malloc((rows + height) * (columns + width + BLOCK) * sizeof *scratch);
        for (int64_t j = 0; j < bytes; j++) pixels[j] = (uint8_t)below(256);
        for (int64_t j = 0; j < n; j++) filter[j] = (float)below(1000) / (1000 * (float)n);
        torchdali_blur(pixels, rows, columns, channels, filter, height, width, scratch, out);
        sum = add_bytes(sum, out, bytes);
        free(scratch);
        free(filter);
        free(out);
        free(pixels);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
