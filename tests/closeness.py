"""Comparing results: shapes, dtypes and values, and differences in units in the last place."""

import numpy as np


def as_numpy(x):
    """A NumPy array of anything a framework returns; bfloat16 as float32."""
    x = x.detach() if hasattr(x, "detach") else x
    x = x.resolve_conj() if hasattr(x, "resolve_conj") else x
    if "bfloat16" in str(x.dtype):
        x = x.float() if hasattr(x, "float") else x.astype("float32")
    return np.asarray(x)


def assert_close(got, want, what="", rtol=1e-11, floor=1e-2):
    """Equal shapes, and entries within rtol, relative to themselves.

    An entry is compared with the largest one times `floor` where it is smaller than that:
    at moderate inputs the textbook formula itself is no better there.
    """
    got, want = as_numpy(got), as_numpy(want)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if not want.size:
        return
    size = np.maximum(np.abs(want), floor * np.abs(want).max())
    error = np.abs(got - want)
    wrong = ~(error <= rtol * size)
    assert not wrong.any(), (
        f"{what}: {wrong.sum()} of {wrong.size} entries differ by more than {rtol:g}; "
        f"the first, {got[wrong][0]!r}, should be {want[wrong][0]!r}"
    )


def ulps(got, want, least=0.0):
    """The largest difference, in units in the last place of the wanted entry.

    Entries smaller than `least` are measured in its units: a logarithm near 0 is only as good
    as its argument.  A complex number is as good as the larger of its two parts.
    """
    got, want = as_numpy(got), as_numpy(want)
    if np.iscomplexobj(want):
        size = np.maximum(np.maximum(np.abs(want.real), np.abs(want.imag)), least)
        parts = (lambda x: x.real), (lambda x: x.imag)
        return max(_ulps(part(got), part(want), size) for part in parts)
    return _ulps(got, want, np.maximum(np.abs(want.astype(np.float64)), least))


def _ulps(got, want, size):
    unit = np.spacing(size.astype(got.dtype)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return float(np.max(error / unit, initial=0.0))
