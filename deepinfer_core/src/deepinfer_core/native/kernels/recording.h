/* How are kernel calls noted down, to be made again without the interpreter?
 *
 * A thread that notes calls makes them as well. Calls of other threads are not noted.
 */
#ifndef DI_RECORDING_H
#define DI_RECORDING_H

#include "calls.h"

/* A call and its words; a block of bytes that a word points at lies behind them. */
typedef struct {
  di_called kernel;
  di_word words[];
} di_noted;

typedef struct {
  di_noted **call;
  int64_t count, room, is_incomplete;
} di_recording;

extern _Thread_local di_recording *di_noting;

/* Note a call of `count` words. Word `block`, unless it is -1, points at so many bytes, which are
 * copied. */
void di_note(di_called kernel, const di_word *words, int64_t count, int64_t block, int64_t bytes);

#endif
