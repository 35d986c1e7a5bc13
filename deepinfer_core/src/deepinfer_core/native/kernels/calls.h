/* How does a kernel take its arguments from Python?
 *
 * As words: one union for each argument, filled by calls.c. Behind each kernel stands one line that
 * hands the words on: DI_CALLED(di_name, P(0), L(1), F(2)) for an address, a whole number and a float.
 */
#ifndef DI_CALLS_H
#define DI_CALLS_H

#include "common.h"

typedef union {
  void *p;
  int64_t l;
  double d;
} di_word;

typedef int (*di_called)(const di_word *words);

#define DI_CALLED(name, ...) \
  DI_EXPORT int name##_words(const di_word *words) { return name(__VA_ARGS__); }
#define P(at) words[at].p
#define L(at) words[at].l
#define D(at) words[at].d
#define F(at) (float)words[at].d

#endif
