"""How are operators computed fast on a CPU? By the C kernels of the component set ``core.cpu``.

The C sources in ``kernels/`` are part of the package and are compiled on first use with the
system's compiler (``library``). They know no torch: a component hands over addresses, row strides
and counts.

A component of this room is written like this:

* ``kernels/<family>.c`` holds its functions. Every ``*.c`` there becomes part of the one library;
  ``common.h`` has the shared number formats. A function that Python calls is ``DI_EXPORT``,
  returns ``int`` (``DI_OK`` or another code), and takes only ``void *``, ``int64_t``, ``double``
  and ``float``. A ``DI_CALLED`` line behind it spares the conversions of ``ctypes``
  (``calls.h``).
* ``build(options, context)`` calls ``open_library(context.cache_dir)`` once and binds each function
  with ``bind(library, "di_name", "plld")``: one letter an argument, ``p`` an address, ``l`` a whole
  number, ``d`` and ``f`` floats, ``b`` bytes. A code other than ``DI_OK`` raises.
* Calls are noted and made again later (``recording``), with the same addresses. So an address is
  that of a tensor, or of what lives as long as its component; a list of words is passed as ``b``.
* Tensors are passed as ``tensor.data_ptr()``, their dtype as ``type_code(tensor.dtype)``. Check
  shapes, dtypes and strides in Python first: C checks nothing. Keep the tensor alive during the
  call.
* Calls release the interpreter's lock. Threads inside a kernel are those of
  ``torch.get_num_threads()``, read in ``build``; no sum's order may depend on them.
* ``-ffast-math`` is off and products are not contracted with sums behind our back
  (``-ffp-contract=off``): where a fused multiply-add is wanted, ``common.h`` has ``di_fma``.
"""
