"""The NumPy side: `bind(op)`, a function of NumPy arrays.

`binder` holds it, and the one call of host functions (`call_host`) that torch and JAX use.
"""

from twingrad.interop.numpy.binder import bind

__all__ = ["bind"]
