/* How does the interpreter call a kernel without building foreign-function arguments?
 *
 * A decode step makes some three hundred calls, most of them shorter than what ctypes needs to convert
 * ten arguments. A function made here reads them straight from the interpreter's vector. It uses the
 * stable binary interface alone (since Python 3.10); its few declarations stand here, because the
 * interpreter's headers need not be installed. The symbols come from the process that loads the library.
 */
#include "recording.h"

typedef struct object object;
typedef object *(*called_fast)(object *self, object *const *arguments, intptr_t count);
typedef struct {
  const char *name;
  called_fast function;
  int flags;
  const char *doc;
} method;

extern object *PyCFunction_NewEx(method *definition, object *self, object *module);
extern object *PyCapsule_New(void *pointer, const char *name, void *destructor);
extern void *PyCapsule_GetPointer(object *capsule, const char *name);
extern void *PyLong_AsVoidPtr(object *number);
extern long long PyLong_AsLongLong(object *number);
extern double PyFloat_AsDouble(object *number);
extern object *PyLong_FromLong(long number);
extern char *PyBytes_AsString(object *bytes);
extern intptr_t PyBytes_Size(object *bytes);
extern object *PyObject_CallFunction(object *function, const char *format, ...);
extern object *PyErr_Occurred(void);
extern object *PyErr_NoMemory(void);
extern void PyErr_SetString(object *kind, const char *message);
extern void Py_IncRef(object *counted);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *state);
extern object *PyExc_TypeError;
extern object _Py_NoneStruct;

#define FASTCALL 0x0080
#define MOST 24

typedef struct {
  method definition;
  di_called kernel;
  object *failed;
  intptr_t count;
  char name[64], letters[MOST + 1];
} callable;

/* 0, or -1 with an exception set. */
static int read_word(char letter, object *argument, di_word *word) {
  if (letter == 'p') {
    word->p = argument == &_Py_NoneStruct ? NULL : PyLong_AsVoidPtr(argument);
    return !word->p && PyErr_Occurred() ? -1 : 0;
  }
  if (letter == 'b') return (word->p = PyBytes_AsString(argument)) ? 0 : -1;
  if (letter == 'l') {
    word->l = PyLong_AsLongLong(argument);
    return word->l == -1 && PyErr_Occurred() ? -1 : 0;
  }
  word->d = PyFloat_AsDouble(argument);
  return word->d == -1.0 && PyErr_Occurred() ? -1 : 0;
}

static void note(const callable *wanted, object *const *arguments, const di_word *words) {
  const char *letter = strchr(wanted->letters, 'b');
  int64_t block = letter ? letter - wanted->letters : -1;
  di_note(wanted->kernel, words, wanted->count, block, letter ? PyBytes_Size(arguments[block]) : 0);
}

static object *call(object *self, object *const *arguments, intptr_t count) {
  callable *wanted = PyCapsule_GetPointer(self, NULL);
  di_word words[MOST];
  if (!wanted) return NULL;
  if (count != wanted->count) {
    PyErr_SetString(PyExc_TypeError, "a kernel takes as many arguments as it was bound with");
    return NULL;
  }
  for (intptr_t at = 0; at < count; at++)
    if (read_word(wanted->letters[at], arguments[at], words + at)) return NULL;
  if (di_noting) note(wanted, arguments, words);
  void *state = PyEval_SaveThread();
  int code = wanted->kernel(words);
  PyEval_RestoreThread(state);
  if (code) return PyObject_CallFunction(wanted->failed, "si", wanted->name, code);
  return PyLong_FromLong(code);
}

/* A Python function that calls a kernel; a code other than DI_OK goes to `failed(name, code)`. It lives
 * as long as the process. Call with the interpreter's lock held. */
DI_EXPORT object *di_callable(di_called kernel, const char *name, const char *letters,
                              object *failed) {
  callable *made = strlen(name) < 64 && strlen(letters) <= MOST ? calloc(1, sizeof *made) : NULL;
  if (!made) return PyErr_NoMemory();
  strcpy(made->name, name);
  strcpy(made->letters, letters);
  Py_IncRef(failed);
  made->kernel = kernel;
  made->failed = failed;
  made->count = (intptr_t)strlen(letters);
  made->definition = (method){made->name, call, FASTCALL, NULL};
  object *self = PyCapsule_New(made, NULL, NULL);
  return self ? PyCFunction_NewEx(&made->definition, self, NULL) : NULL;
}
