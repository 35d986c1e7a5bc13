#include "common.h"
DI_EXPORT int di_nothing(void *x, int64_t n) { return x == 0 && n < 0; }
