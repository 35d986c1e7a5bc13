/* How is a list of kernel calls kept, and made again? See recording.h. */
#include "recording.h"

_Thread_local di_recording *di_noting = NULL;

void di_note(di_called kernel, const di_word *words, int64_t count, int64_t block, int64_t bytes) {
  di_recording *to = di_noting;
  if (to->count == to->room) {
    int64_t room = to->room ? 2 * to->room : 64;
    di_noted **call = realloc(to->call, (size_t)room * sizeof *call);
    if (!call) {
      to->is_incomplete = 1;
      return;
    }
    to->call = call, to->room = room;
  }
  size_t words_bytes = (size_t)count * sizeof *words, size = sizeof(di_noted) + words_bytes;
  di_noted *noted = malloc(size + (block < 0 ? 0 : (size_t)bytes));
  if (!noted) {
    to->is_incomplete = 1;
    return;
  }
  noted->kernel = kernel;
  memcpy(noted->words, words, words_bytes);
  if (block >= 0) {
    memcpy((char *)noted + size, words[block].p, (size_t)bytes);
    noted->words[block].p = (char *)noted + size;
  }
  to->call[to->count++] = noted;
}

/* Calls of this thread are noted from now on, until the end; NULL without memory. */
DI_EXPORT di_recording *di_recording_begin(void) {
  return di_noting = calloc(1, sizeof(di_recording));
}

/* The number of calls so far. */
DI_EXPORT int64_t di_recording_count(const di_recording *recording) { return recording->count; }

/* No more calls are noted; a code. */
DI_EXPORT int di_recording_end(di_recording *recording) {
  di_noting = NULL;
  return recording->is_incomplete ? DI_NO_MEMORY : DI_OK;
}

DI_EXPORT void di_recording_free(di_recording *recording) {
  for (int64_t i = 0; i < recording->count; i++) free(recording->call[i]);
  free(recording->call);
  free(recording);
}

/* Make calls [from, until) again, up to the first that fails. */
DI_EXPORT int di_replay(const di_recording *recording, int64_t from, int64_t until) {
  for (int64_t i = from; i < until; i++) {
    int code = recording->call[i]->kernel(recording->call[i]->words);
    if (code) return code;
  }
  return DI_OK;
}
DI_CALLED(di_replay, P(0), L(1), L(2))
