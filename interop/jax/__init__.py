"""The JAX side: `bind(op)`, a function of arrays, right under every transform.

`binder` holds it; `linear` the primitive for derivatives, `host` the host calls, `evaluate` the
op's own call.  Users touch `bind`; everything else may change.
"""

from twingrad.interop.jax.binder import bind

__all__ = ["bind"]
