// The limit: the work of `compare.py` in C alone, with one thread per core, nothing but libjpeg-turbo and our kernels.
//
// Usage: limit train|evaluate THREADS SECONDS BATCH FILES   (FILES: a text with one path per line)
// Prints images, seconds and CPU seconds.  Build: cc -O3 -march=native -ffp-contract=off -o limit limit.c -ljpeg -lm -lpthread

#include "../torchdali/native/images.c"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jpeglib.h>

enum { CROP = 224, SHORTER = 256, TRIES = 10, MOST_PATHS = 1 << 20, MOST_PIXELS = 1 << 24 };

static char **paths;
static int64_t path_count, batch_size;
static int evaluating;
static double until;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double draw(unsigned *seed) { return rand_r(seed) / (RAND_MAX + 1.0); }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// The window of torchvision's RandomResizedCrop, or what Resize(256) and CenterCrop(224) take of the image.
static void choose(Picture *p, int64_t height, int64_t width, unsigned *seed) {
    if (evaluating) {
        const int64_t shorter = smaller(height, width);
        *p = (Picture){.height = height, .width = width};
        p->full_height = height * SHORTER / shorter;
        p->full_width = width * SHORTER / shorter;
        p->out_top = (p->full_height - CROP) / 2;
        p->out_left = (p->full_width - CROP) / 2;
    } else {
        *p = (Picture){.full_height = CROP, .full_width = CROP, .flip_columns = draw(seed) < 0.5};
        p->height = p->width = smaller(height, width);
        for (int i = 0; i < TRIES; i++) {
            const double area = height * width * (0.08 + 0.92 * draw(seed));
            const double ratio = exp(log(0.75) + draw(seed) * (log(4.0 / 3) - log(0.75)));
            const int64_t w = lround(sqrt(area * ratio)), h = lround(sqrt(area / ratio));
            if (w < 1 || h < 1 || w > width || h > height) continue;
            p->height = h;
            p->width = w;
            break;
        }
        p->top = (height - p->height) * draw(seed);
        p->left = (width - p->width) * draw(seed);
    }
    p->out_height = p->out_width = CROP;
}

// Decodes the window of a file; only its rows and its blocks of columns.
static int decode(const char *path, Picture *p, uint8_t *file, uint8_t *pixels, unsigned *seed) {
    const int handle = open(path, O_RDONLY);
    if (handle < 0) return 0;
    const int64_t size = read(handle, file, MOST_PIXELS);
    close(handle);
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, file, size);
    jpeg_read_header(&jpeg, TRUE);
    choose(p, jpeg.image_height, jpeg.image_width, seed);
    jpeg_start_decompress(&jpeg);
    JDIMENSION left = p->left, width = p->width;
    jpeg_crop_scanline(&jpeg, &left, &width);
    if (p->top) jpeg_skip_scanlines(&jpeg, p->top);
    p->stride = COLORS * (int64_t)width;
    for (int64_t y = 0; y < p->height;) {
        JSAMPROW row = pixels + y * p->stride;
        y += jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_abort_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    p->pixels = (int64_t)pixels;
    p->rows = p->height;
    p->columns = width;
    p->left -= left;
    p->top = 0;
    return 1;
}

static void *work(void *number) {
    unsigned seed = 1 + (unsigned)(intptr_t)number;
    const int64_t image = (int64_t)CROP * CROP * COLORS * sizeof(float);
    uint8_t *file = malloc(MOST_PIXELS), *pixels = malloc(MOST_PIXELS), *rows = malloc(batch_size * image);
    const float scale[] = {1 / 0.229f, 1 / 0.224f, 1 / 0.225f};
    const float bias[] = {-0.485f / 0.229f, -0.456f / 0.224f, -0.406f / 0.225f};
    const uint8_t fill[COLORS] = {0};
    int64_t done = 0;
    while (now(CLOCK_MONOTONIC) < until) {
        Picture p;
        if (!decode(paths[(int64_t)(draw(&seed) * path_count)], &p, file, pixels, &seed)) continue;
        const Batch to = {rows + done % batch_size * image, image, CROP * COLORS * sizeof(float), COLORS, 0, 1,
                          1 / 255.0f, scale, bias, fill};
        if (torchdali_write_images(&p, 0, 1, 1, &to)) abort();
        done++;
    }
    free(file);
    free(pixels);
    free(rows);
    return (void *)(intptr_t)done;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    evaluating = !strcmp(argv[1], "evaluate");
    const int threads = atoi(argv[2]);
    batch_size = atoi(argv[4]);
    paths = malloc(MOST_PATHS * sizeof *paths);
    FILE *list = fopen(argv[5], "r");
    char line[4096];
    while (list && path_count < MOST_PATHS && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = 0;
        paths[path_count++] = strdup(line);
    }
    if (!path_count || threads < 1) return 2;
    pthread_t *started = malloc(threads * sizeof *started);
    const double begin = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    until = begin + atof(argv[3]);
    for (int64_t i = 0; i < threads; i++) pthread_create(started + i, NULL, work, (void *)(intptr_t)i);
    int64_t images = 0;
    for (int i = 0; i < threads; i++) {
        void *done;
        pthread_join(started[i], &done);
        images += (intptr_t)done;
    }
    printf("%ld %.6f %.6f\n", (long)images, now(CLOCK_MONOTONIC) - begin, now(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    return 0;
}
