"""Functions that are not accurate in every framework and mode: erfcx, expm1 and log1p.

Each is the library's own where that is accurate to a few units in the last place (ulps),
and a formula that compilers fuse where it is not; what was measured of every function and
mode stands in experiments/results/REPORT.md. The others that the ops use, exp and log, are
within 1.2 ulps everywhere. XLA on the CPU takes subnormal numbers for 0; no formula can
help that.

`erfcx(xp, x) = exp(x*x) erfc(x)` for x >= 0 (DLMF 7.2.3 calls it w(ix)). torch
and SciPy have it; `jax.scipy.special.erfcx` multiplies exp(x*x) by erfc(x),
which loses digits as x grows and gives 0 from 26.6 (float64) or 9.3 (float32).
It is a value only: the rules of the ops that call it never differentiate it.
The other two may be differentiated, to every order.
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
    """exp(x*x) erfc(x) for x >= 0, within 8 units in the last place.

    Our own polynomial is within 5 and needs no library, and a compiler fuses it
    into one loop. Eager torch would walk memory some fifty times for it, so
    there float64 goes to torch's own function, which is within 8.
    """
    double = xp.finfo(x.dtype).bits == 64
    if double and _is_torch(xp) and not xp.compiler.is_compiling():
        return xp.special.erfcx(x)
    k, *coefficients = _DOUBLE if double else _SINGLE
    return _horner(coefficients, (x - k) / (x + k)) / (1.0 + 2.0 * x)


# x / (e^x - 1) = 1 - x/2 + x^2 S(x^2), where S has the coefficients B_2k / (2k)! with the
# Bernoulli numbers B_2k (DLMF 24.2.1 and Table 24.2.1). At |x| <= 1/2 the next one is below
# 3e-18 (after seven) and 3.3e-9 (after three). The division leaves out nothing: x is exact,
# and x/2 and S are small beside 1. At |x| > 1/2, e^x - 1 loses at most 1.5 ulps of e^x.
BERNOULLI = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
)


def expm1(xp: Any, x: Any) -> Any:
    """exp(x) - 1, within 5 units in the last place.

    In code that torch compiles it is our own formula, within 3: there Inductor computes
    exp(x) - 1 as it stands, with no digit left near 0 (pytorch/pytorch#189803).
    """
    if not (_is_torch(xp) and xp.compiler.is_compiling()):
        return xp.expm1(x)
    terms = BERNOULLI if xp.finfo(x.dtype).bits == 64 else BERNOULLI[:3]
    near = xp.clip(x, -0.5, 0.5)
    square = near * near
    quotient = 1.0 + (square * _horner(terms[::-1], square) - 0.5 * near)
    return xp.where(near == x, near / quotient, xp.exp(x) - 1.0)


def log1p(xp: Any, x: Any) -> Any:
    """log(1 + x), within 3 units in the last place.

    XLA's float64 log1p is up to 128 off for x from -0.46 to -0.35 on the CPU
    (jax-ml/jax#39707). Where x < -0.3 the logarithm of 1 + x is within 2.2: the sum is
    rounded by 2^-54 at the most, and its logarithm is below -0.35.
    """
    if not xp.__name__.startswith("jax"):
        return xp.log1p(x)
    return xp.where(x < -0.3, xp.log(1.0 + x), xp.log1p(x))


def _is_torch(xp: Any) -> bool:
    return bool(xp.__name__.endswith("torch"))


def _horner(coefficients: Any, x: Any) -> Any:
    """The polynomial in x with these coefficients, the highest first."""
    first, second, *rest = coefficients
    value = first * x + second
    for coefficient in rest:
        value = value * x + coefficient
    return value
