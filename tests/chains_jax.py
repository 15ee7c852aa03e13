"""Which chains of transforms JAX can do: what it refuses for its own operations is no case."""

from tests.chains_draw import COMMON, Grammar
from tests.chains_ops import HEAVY, SMALL


def fits(case, link):
    """Whether JAX 0.10 can put this link around the chain."""
    if link.kind in ("jit", "checkpoint") and case.row in HEAVY:
        # a staged custom_jvp loses an axis under vmap where an array is empty and the function
        # has a jnp.where: jax-ml/jax#16374
        return 0 not in (*case.plan.batch, *case.shapes[0])
    return True


GRAMMAR = Grammar((*COMMON, "linearize", "jit", "checkpoint"), fits)
# each operation of each shape is compiled by itself: small cases only
EAGER = Grammar((*COMMON, "linearize"), fits, rows=tuple(SMALL), heavy=(), depth=2, order=2)
