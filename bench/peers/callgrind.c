// Requests to callgrind, for a program that runs under it. Outside of valgrind they do nothing.
#include <valgrind/callgrind.h>

void start_count(void) { CALLGRIND_ZERO_STATS; }
void dump_count(void) { CALLGRIND_DUMP_STATS; }
