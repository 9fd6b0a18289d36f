/* The module: checks what a loop is given, lets other threads run, and calls it. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include "arrays.h"

enum { MOST_ARGUMENTS = 12 };

static int number_of_type(char letter)
{
    switch (letter) {
    case '?': return NPY_BOOL;
    case 'B': return NPY_UINT8;
    case 'h': return NPY_INT16;
    case 'i': return NPY_INT32;
    case 'q': return NPY_INT64;
    case 'Q': return NPY_UINT64;
    default: return NPY_FLOAT64;
    }
}

/* Takes in one argument as `wanted` says: N an integer, F a number, or a letter of a type and the number of dimensions,
   with * after it if the loop writes there.  Returns the rest of `wanted`, or NULL with an error set. */
static const char *taken(const char *wanted, PyObject *given, Argument *argument)
{
    if (*wanted == 'N') {
        argument->whole = PyLong_AsLongLong(given);
        return PyErr_Occurred() ? NULL : wanted + 1;
    }
    if (*wanted == 'F') {
        argument->real = PyFloat_AsDouble(given);
        return PyErr_Occurred() ? NULL : wanted + 1;
    }
    int dimensions = wanted[1] - '0', written = wanted[2] == '*';
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(array) != number_of_type(*wanted) || PyArray_NDIM(array) != dimensions ||
        !(written ? PyArray_IS_C_CONTIGUOUS(array) && PyArray_ISBEHAVED(array) : PyArray_ISCARRAY_RO(array))) {
        PyErr_Format(PyExc_TypeError, "a contiguous array of type %c with %d dimensions is needed", *wanted, dimensions);
        return NULL;
    }
    argument->data = PyArray_DATA(array);
    for (int i = 0; i < dimensions; i++)
        argument->shape[i] = PyArray_DIM(array, i);
    return wanted + 2 + written;
}

static PyObject *call(Loop *loop, const char *wanted, PyObject *const *given, Py_ssize_t count)
{
    Argument arguments[MOST_ARGUMENTS];
    int64_t found;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!*wanted || !(wanted = taken(wanted, given[i], arguments + i))) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "too many arguments");
            return NULL;
        }
    }
    if (*wanted) {
        PyErr_SetString(PyExc_TypeError, "too few arguments");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    found = loop(arguments);
    Py_END_ALLOW_THREADS
    if (found == UNFIT) {
        PyErr_SetString(PyExc_ValueError, "these arrays do not belong together");
        return NULL;
    }
    return PyLong_FromLongLong(found);
}

#define LOOPS(ENTRY)                                      \
    ENTRY(mix_words, "Q2Q2Q3*")                           \
    ENTRY(draw_normals, "Q3Q1Q1d2FFd2*d2*")               \
    ENTRY(draw_middles, "Q3Q1Q1d2*")                      \
    ENTRY(blt_advance, "d2*d2*Nd1d1d1d2d2i2*N")           \
    ENTRY(blt_add_up, "d2d2i1*")                          \
    ENTRY(blt_combine, "d2*d2*d2d2d2d2")                  \
    ENTRY(reach_follow, "d2h2*d1d1")                      \
    ENTRY(reach_compare, "d1h2d1i1NFF?1*")                \
    ENTRY(encode_labels, "B1q1B1NB1*Nq1*")                \
    ENTRY(find_starts, "B1NNNq1*")                        \
    ENTRY(measure_labels, "B1q1q1q1*")                    \
    ENTRY(spell_labels, "B1q1q1B1*B1*")                   \
    ENTRY(measure_following, "B1q1Nq1*")                  \
    ENTRY(spell_following, "B1q1NNB1*B1*")                \
    ENTRY(place_rows, "i1*Q2N?1*")                        \
    ENTRY(text_digests, "B1B1B1q1Q2*")                    \
    ENTRY(chained_digests, "B1q1B1*Q2*")                  \
    ENTRY(fill_greedily, "q1q1q1NNq1*")                   \
    ENTRY(fill_evenly, "q1q1q1NNq1*")                     \
    ENTRY(move_towards, "q1q1q1Fd1*")

#define FUNCTION(name, wanted)                                                                  \
    Loop name;                                                                                  \
    static PyObject *call_##name(PyObject *module, PyObject *const *given, Py_ssize_t count)    \
    {                                                                                           \
        (void)module;                                                                           \
        return call(name, wanted, given, count);                                                \
    }
LOOPS(FUNCTION)

#define METHOD(name, wanted) {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL, NULL},
static PyMethodDef methods[] = {LOOPS(METHOD){NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_compiled", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void)
{
    import_array();
    return PyModule_Create(&module);
}
