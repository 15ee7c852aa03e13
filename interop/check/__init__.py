"""The gradient doctor: is a hand-written gradient right, and if not, what is wrong with it?

    from twingrad.interop.check import check

    print(check(op))                       # an Op, in torch and in JAX
    check(MyFunction, x, s).raise_if_failed()
    check(my_custom_vjp, x, framework="jax").failures

From the shell ``python -m twingrad.interop.check package.module:name --shapes n=5,k=3``; in a
test ``assert_gradients(target, ...)``.
"""

from twingrad.interop.check.doctor import assert_gradients, check
from twingrad.interop.check.patterns.named import PATTERNS
from twingrad.interop.check.report import Example, Finding, Report

__all__ = ["PATTERNS", "Example", "Finding", "Report", "assert_gradients", "check"]
