// What the programs of random cases share: random numbers, and a checksum of what the kernels wrote.

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t EMPTY = 0xCBF29CE484222325u;  // the checksum of nothing

static inline int64_t below(int64_t n) {  // splitmix64
    static uint64_t state = 1;
    uint64_t x = state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return (int64_t)((x ^ (x >> 31)) % (uint64_t)n);
}

static inline uint64_t add_bytes(uint64_t sum, const void *bytes, int64_t n) {  // FNV-1a
    for (int64_t j = 0; j < n; j++) sum = (sum ^ ((const uint8_t *)bytes)[j]) * 0x100000001B3u;
    return sum;
}
