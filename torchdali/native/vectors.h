// What loops need that the compiler turns into vectors: an attribute for their functions, and whether this CPU runs them.

#if defined(__x86_64__)
#define VECTORS __attribute__((target("avx2,fma")))
static inline int has_vectors(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define VECTORS
#if defined(__aarch64__)
static inline int has_vectors(void) { return 1; }
#else
static inline int has_vectors(void) { return 0; }
#endif
#endif
