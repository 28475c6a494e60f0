// As native_cases.c: random images through the kernels of colours.
#include "../torchdali/native/colors.c"

#include "native_cases.h"

int main(void) {
    enum { CASES = 1000, LARGEST = 40, KERNELS = 9 };
    uint64_t sum = EMPTY;
    if (!torchdali_colors()) return 1;
    for (int k = 0; k < CASES; k++) {
        const int64_t rows = 1 + below(LARGEST), columns = 1 + below(LARGEST), n = rows * columns, bytes = n * COLORS;
        const int64_t levels = k % 3 ? 256 : 1 + below(4);
        const float factor = (float)below(2500) / 1000, shift = (float)(below(1001) - 500) / 1000;
        const int64_t places[] = {k % 3, (k + 1) % 3, (k + 2) % 3};
        uint8_t *pixels = malloc(bytes), *out = malloc(bytes);
        float *grey = malloc(n * sizeof(float));
        for (int64_t j = 0; j < bytes; j++) pixels[j] = (uint8_t)(below(levels) * (255 / levels));
        for (int kernel = 0; kernel < KERNELS; kernel++) {
            if (kernel == 0) torchdali_grayscale(pixels, n, out);
            if (kernel == 1) torchdali_mix(pixels, n, factor, (float)below(256) / 3, 1 - factor, out);
            if (kernel == 2) torchdali_mix_grey(pixels, n, factor, 1 - factor, out);
            if (kernel == 3) torchdali_hue(pixels, n, shift, out);
            if (kernel == 4) torchdali_permute(pixels, n, places, out);
            if (kernel == 5) torchdali_stretch(pixels, n, out);
            if (kernel == 6) torchdali_equalize(pixels, n, out);
            if (kernel == 7) torchdali_sharpen(pixels, rows, columns, 1 - factor, out);
            if (kernel == 8) torchdali_grey(pixels, n, grey);
            sum = kernel == 8 ? add_bytes(sum, grey, n * (int64_t)sizeof(float)) : add_bytes(sum, out, bytes);
        }
        free(grey);
        free(out);
        free(pixels);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
