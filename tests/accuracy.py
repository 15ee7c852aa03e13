"""Values and derivatives of an op at its hard inputs, as each framework computes them."""

import functools
import importlib

import numpy as np

from tests.fixed import numpy_function
from tests.op_table import ROWS
from tests.pairs import NUMPY, arguments, split

# the parts of what is measured, and the place of the truth for it in `truth.evaluate`
PARTS = {
    "value": 0,
    "reverse": 1,
    "forward": 1,
    "second, rev over rev": 2,
    "second, fwd over rev": 2,
}

BOUNDS = {
    ("float64", 0): 1e-13,
    ("float64", 1): 1e-13,
    ("float64", 2): 1e-10,
    ("float32", 0): 2e-5,
    ("float32", 1): 2e-5,
    ("float32", 2): 1e-3,
}
FAR_OUT = {
    ("float64", 0): 3e-13,
    ("float64", 1): 3e-13,
    ("float64", 2): 1e-10,
    ("float32", 0): 4e-5,
    ("float32", 1): 4e-5,
    ("float32", 2): 2e-2,
}


def check(row, dtype, found, note=lambda name, value: None):
    """That each part of `found`, see `measured`, is within its bound at every hard input.

    Bounds, relative to the natural size of each block (see `error`):

    - values and first derivatives 1e-13 in float64 and 2e-5 in float32;
    - second derivatives 1e-10 and 1e-3;
    - at 35 sigma more: phi(t) = exp(-t^2/2) has t^2 times the relative error of t, and
      t = (lower - mean)/scale is rounded twice; 35^2 = 1225 units of 1.1e-16 are 1.3e-13;
    - where several laws matter t sigma away ("near"), the second derivatives hold the variance
      of slopes of the order t, and are good to a rounding of t^2, as log Z is.
    """
    misses, claims = [], 0
    for part, arrays in found.items():
        worst = 0.0
        for name, got in zip(row.hard, arrays, strict=True):
            exact = exact_of(row.name, name, dtype)
            size = None if exact is None else error(row, dtype, got, exact, part)
            if size is None:
                continue
            bound = (FAR_OUT if "35" in name else BOUNDS)[dtype, PARTS[part]]
            if "near" in name and PARTS[part] == 2:
                bound *= max(1.0, np.max(np.abs(exact[0])))
            claims, worst = claims + 1, max(worst, size)
            if not size <= bound:
                misses.append(f"{part}, {name}: {size:.1e}, allowed {bound:.0e}")
        note(f"worst relative error, {part}", worst)
    assert not misses, "; ".join(misses)
    assert claims > len(row.hard)


@functools.cache
def exact_of(name, hard, dtype):
    """`truths`, computed once for every mode."""
    return truths(next(row for row in ROWS if row.name == name), hard, dtype)


def truths(row, name, dtype):
    """(value, first, second) at the inputs as they are after rounding to `dtype`.

    None where rounding makes another problem of them, such as lower = upper.
    """
    try:
        inputs = [
            np.asarray(x, own)
            for x, own in zip(row.hard[name], row.dtypes(dtype)[:-1], strict=True)
        ]
        return row.exact(inputs, row.digits)
    except ZeroDivisionError:
        return None


def evaluate(side_name, op, inputs):
    """The op's value, as NumPy."""
    if side_name == "numpy":
        with np.errstate(all="ignore"):
            return np.asarray(numpy_function(op)(*inputs))
    side = importlib.import_module(f"tests.side_{side_name}")
    return side.numpy(side.function(op)(*map(side.array, inputs)))


@functools.cache
def measured(side_name, name, dtype):
    """part -> array with the hard inputs of the row in front, one batched call for each part."""
    row = next(row for row in ROWS if row.name == name)
    columns = zip(*row.hard.values(), strict=True)
    own = zip(columns, row.dtypes(dtype)[:-1], strict=True)
    inputs = [np.array(column).astype(name) for column, name in own]
    if side_name == "numpy":
        with np.errstate(all="ignore"):
            return _numpy(row, inputs)
    side = importlib.import_module(f"tests.side_{side_name}")
    return _framework(side, row, inputs)


def _numpy(row, inputs):
    f = numpy_function(row.op)
    value = f(*inputs)
    rows, columns = [], []
    for ct in _each_entry(value):  # the gradient of the real part of sum(ct * value)
        rows.append(_flat([g.conj() for g in f.vjp(ct.conj(), *inputs)]))
    for i, x in enumerate(inputs if row.op.jvp else ()):
        for t in _each_entry(x):
            tangents = [t if i == j else np.zeros_like(v) for j, v in enumerate(inputs)]
            columns.append(_flat([f.jvp(tuple(tangents), *inputs)]))
    found = {"value": _flat([value]), "reverse": np.stack(rows, 1)}
    if columns:
        found["forward"] = np.stack(columns, -1)
    return found


def _each_entry(x):
    """Arrays like x with 1 in one place of each sample, and then i where x is complex."""
    for where in np.ndindex(x.shape[1:]):
        for part in (1, 1j) if np.iscomplexobj(x) else (1,):
            found = np.zeros_like(x)
            found[(slice(None), *where)] = part
            yield found


def _flat(arrays):
    return np.concatenate([split(NUMPY, x).reshape(len(x), -1) for x in arrays], axis=1)


def _framework(side, row, inputs):
    def f(vector):
        return split(side.LIB, side.function(row.op)(*arguments(row, side.LIB, vector))).reshape(-1)

    flat = side.array(_flat(inputs))
    parts = {
        "value": f,
        "reverse": side.jacrev(f),
        "forward": side.jacfwd(f),
        "second, rev over rev": side.jacrev(side.jacrev(f)),
        "second, fwd over rev": side.jacfwd(side.jacrev(f)),
    }
    found = {}
    for name, part in parts.items():
        # optimised, as users compile it, where that does not take too long
        full = side.NAME == "jax" and name in ("value", "reverse") and flat.dtype == np.float64
        compiled = side.compiler() if full else side.once
        found[name] = side.numpy(compiled(side.vmap(part))(flat))
    return found


def error(row, dtype, found, exact, part):
    """The largest error of a part, relative to the natural size of its block; None: no claim.

    A block is everything that belongs to one argument (or to a pair), for all outputs; its
    natural size is the largest entry.  A second derivative of log f is f''/f less a product of
    first derivatives, so the size of its block (a, b) is at least that of the product, and
    that of the geometric mean of the blocks (a, a) and (b, b).

    No claim is made where entries are too large for the dtype: the op's documentation says
    that it overflows there.
    """
    order, limits = PARTS[part], np.finfo(dtype)
    if any(np.max(np.abs(a)) > limits.max / 1e3 for a in exact[: order + 1]):
        return None
    parts = zip(row.cores, row.complex_inputs, strict=True)
    ends = np.cumsum([int(np.prod(core)) * (1 + c) for core, c in parts])[:-1]
    sizes = _sizes(exact, ends)[order]
    got, want = (_blocks(a, ends) for a in (found.astype(np.float64), exact[order]))
    worst = 0.0
    for size, g, w in zip(sizes, got, want, strict=True):
        difference = np.max(np.abs(g - w))
        # below the smallest normal number XLA gives 0
        worst = max(
            worst, max(difference - float(limits.tiny), 0.0) / max(size, float(limits.tiny))
        )
        if np.isnan(difference):
            return np.inf
    return float(worst)


def _blocks(array, ends):
    parts = [array]
    for axis in range(1, array.ndim):
        parts = [piece for part in parts for piece in np.split(part, ends, axis)]
    return parts


def _sizes(exact, ends):
    """The natural sizes of the blocks of the value, the first and the second derivative."""
    value, first, second = (np.array([np.max(np.abs(b)) for b in _blocks(a, ends)]) for a in exact)
    slope = first / np.sqrt(max(value[0], 1.0))
    products = np.outer(slope, slope)
    square = second.reshape(products.shape)
    means = np.outer(np.sqrt(np.diag(square)), np.sqrt(np.diag(square)))
    return value, first, np.maximum(np.maximum(square, products), means).ravel()
