// Random images through the kernels, for a sanitizer: each in memory of its exact size, as is the batch.  It prints a
// checksum of what they wrote, which is the same on every CPU that can resize.
#include "../torchdali/native/images.c"

#include "native_cases.h"

int main(void) {
    enum { CASES = 4000, LARGEST = 90 };
    // Numbers whose products are rounded, so that one rounding for a product and a sum would show.
    const float scale[] = {4.367f, 0.3f, 2.1f, 1.0f / 3}, bias[] = {0.1f, -2.118f, -1.804f, 0.7f};
    uint64_t sum = EMPTY;
    const uint8_t fill[] = {1, 2, 3, 4};
    for (int k = 0; k < CASES; k++) {
        const int resizes = k % 2 && torchdali_resizes();
        Picture one = {.rows = 1 + below(LARGEST), .columns = 1 + below(LARGEST)};
        Batch to = {.channels = resizes ? (below(3) ? COLORS : 1) : 1 + below(4), .bicubic = below(2), .normalise = below(2)};
        to.unit = below(2) ? 1 : 1.0f / 255;
        to.scale = scale, to.bias = bias, to.fill = fill;
        one.stride = one.columns * to.channels + (k % 3 ? 0 : below(30));
        const int64_t bytes = one.stride * (one.rows - 1) + one.columns * to.channels;
        uint8_t *pixels = malloc(bytes);
        for (int64_t j = 0; j < bytes; j++) pixels[j] = (uint8_t)below(256);
        one.pixels = (int64_t)pixels;
        one.top = resizes ? below(one.rows) : below(3 * LARGEST) - 2 * LARGEST;
        one.left = resizes ? below(one.columns) : below(3 * LARGEST) - 2 * LARGEST;
        one.height = 1 + below(resizes ? one.rows - one.top : LARGEST);
        one.width = 1 + below(resizes ? one.columns - one.left : LARGEST);
        one.full_height = resizes ? 1 + below(LARGEST) : one.height;
        one.full_width = resizes ? 1 + below(LARGEST) : one.width;
        one.out_top = resizes ? below(one.full_height) : 0;
        one.out_left = resizes ? below(one.full_width) : 0;
        one.out_height = resizes ? 1 + below(one.full_height - one.out_top) : one.height;
        one.out_width = resizes ? 1 + below(one.full_width - one.out_left) : one.width;
        one.flip_rows = below(2), one.flip_columns = below(2);
        to.row_bytes = one.out_width * to.channels * (to.normalise ? (int64_t)sizeof(float) : 1);
        to.image_bytes = to.row_bytes * one.out_height;
        to.batch = malloc(to.image_bytes);
        if (torchdali_write_images(&one, 0, 1, 1, &to)) return 1;
        sum = add_bytes(sum, to.batch, to.image_bytes);
        free(to.batch);
        free(pixels);
    }
    printf("%016llx\n", (unsigned long long)sum);
    return 0;
}
