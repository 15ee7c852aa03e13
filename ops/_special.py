"""The scaled complementary error function, for every array namespace.

`erfcx(xp, x) = exp(x*x) erfc(x)` for x >= 0 (DLMF 7.2.3 calls it w(ix)). torch
and SciPy have it; `jax.scipy.special.erfcx` multiplies exp(x*x) by erfc(x),
which loses digits as x grows and gives 0 from 26.6 (float64) or 9.3 (float32).
It is a value only: the rules of the ops that call it never differentiate it.
"""

from typing import Any

# (1 + 2x) erfcx(x) stays between 1 and 1.27 on x >= 0, and is smooth in
# q = (x - k) / (x + k), which maps [0, inf) to [-1, 1). The form is that of
# Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc(x)
# in 0 <= x < inf", Math. Comp. 36 (1981) 249-253. The coefficients here were
# made anew: the Chebyshev series on 80 nodes at 50 digits, cut off where the
# largest relative error is 2e-17 (float64) or 2e-8 (float32), rewritten in
# powers of q, highest first. The coefficients add up to 1.8 in magnitude, so
# Horner's rule in q is well conditioned.
_DOUBLE = (
    3.5,
    -1.1656687889203665e-09,
    6.040390099342991e-11,
    1.3624442778701048e-08,
    6.651894382376532e-10,
    -9.64004253144383e-08,
    -8.611571571113718e-09,
    6.014823849950426e-07,
    -4.309237398316666e-08,
    -3.814012584490695e-06,
    2.3273309537791425e-06,
    2.4260300984917994e-05,
    -4.2781739959539994e-05,
    -0.00012151212091980101,
    0.0005643842668705102,
    -0.0003022679534333239,
    -0.004215019879774186,
    0.019099330953271165,
    -0.04882332583088402,
    0.08798315382403678,
    -0.11508959816003075,
    0.09751909515328706,
    -0.010555596332221669,
    -0.1400091801376197,
    1.2423492448711544,
)
_SINGLE = (
    2.75,
    -0.00018358372776997294,
    6.125480254258711e-05,
    0.001828397172313405,
    -0.002642052152668669,
    -0.010448709138995347,
    0.05232789293673161,
    -0.1145049244040412,
    0.1449048948636726,
    -0.07130522110778492,
    -0.13046241276265652,
    1.2588036122895792,
)


def erfcx(xp: Any, x: Any) -> Any:
    """exp(x*x) erfc(x) for x >= 0, within 4 units in the last place.

    Our own polynomial is within 2 and needs no library, and a compiler fuses it
    into one loop. Eager torch would walk memory some fifty times for it, so
    there float64 goes to torch's own function, which is within 4.
    """
    double = xp.finfo(x.dtype).bits == 64
    if double and xp.__name__.endswith("torch") and not xp.compiler.is_compiling():
        return xp.special.erfcx(x)
    return _erfcx_polynomial(x, *(_DOUBLE if double else _SINGLE))


def _erfcx_polynomial(x: Any, k: float, first: float, *rest: float) -> Any:
    q = (x - k) / (x + k)
    value = first * q + rest[0]
    for coefficient in rest[1:]:
        value = value * q + coefficient
    return value / (1.0 + 2.0 * x)
