"""The op at its hard inputs in native batches of any length, for any compiler.

`accuracy.measured` has the ops under vmap, not compiled by torch.  Here whole batches go
through the value with its gradient, and through their tangents, in one graph each, in vectors
of a given length: a compiler's code for a vector is not its code for a number, and differs
again in the last few entries of a vector.
"""

import numpy as np

from tests.ops.test_ops_nan import points


def hard_inputs(row, dtype):
    """The hard inputs of the row, in front."""
    columns = zip(*row.hard.values(), strict=True)
    return [np.array(column, np.float64).astype(dtype) for column in columns]


def first(side, f):
    """(ct, *inputs) -> the value and the gradients, in one graph."""

    def run(ct, *x):
        value, pull = side.vjp(f, *x)
        return value, *pull(ct)

    return run


def backward(side, f):
    """The same by `backward` through the compiled call, which has a graph of its own."""

    def run(ct, *x):
        leaves = [v.detach().requires_grad_() for v in x]
        value = f(*leaves)
        value.backward(ct)
        return value.detach(), *[v.grad for v in leaves]

    return run


def second(side, f):
    """(ct, *tangents, *inputs) -> the tangents of the value and of the gradients."""

    def run(ct, *moved):
        half = len(moved) // 2
        return side.jvp(lambda *x: first(side, f)(ct, *x), moved[half:], moved[:half])[1]

    return run


def in_vectors(side, run, arrays, length):
    """The results of `run` in calls of `length` entries: of the first pass over the arrays, and
    of the last, which ends in the remainder of a vector."""
    count = len(arrays[0])
    order = np.arange(-(-count // length) * length) % count
    pieces = [
        [side.numpy(y) for y in run(*[side.array(x[part]) for x in arrays])]
        for part in order.reshape(-1, length)
    ]
    whole = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
    back = np.argsort(order[-count:])
    return [y[:count] for y in whole], [y[-count:][back] for y in whole]


def _one_hot(shapes, count, dtype):
    """For each entry of arrays of these shapes: the arrays, with 1 there and 0 elsewhere."""
    for i, shape in enumerate(shapes):
        for where in np.ndindex(shape):
            arrays = [np.zeros((count, *s), dtype) for s in shapes]
            arrays[i][(slice(None), *where)] = 1
            yield arrays


def _stacked(groups):
    return [np.concatenate(parts) for parts in zip(*groups, strict=True)]


def jacobian(side, row, run, dtype, length):
    """[part -> array], as `accuracy.measured`, once for each pass of `in_vectors`."""
    inputs = hard_inputs(row, dtype)
    count, core = len(inputs[0]), _core(row)
    seeds = list(_one_hot([core], count, dtype))
    passes = in_vectors(side, run, _stacked([[*ct, *inputs] for ct in seeds]), length)
    return [_first_parts(outs, count, len(seeds)) for outs in passes]


def _core(row):
    return tuple(row.sizes[d] for d in row.op.signature.outputs[0])


def _first_parts(outs, count, seeds):
    value, *grads = (y.reshape(seeds, count, -1) for y in outs)
    return {"value": value[0], "reverse": np.concatenate(grads, -1).swapaxes(0, 1)}


def check_nan(side, row, run, dtype):
    """Value and gradient are NaN where an input is, and outside the domain, in one call."""
    x = points(row, dtype)
    if row.name == "truncated_mixture_log_weights":  # what belongs to a weight alone is known
        x = x[~np.isnan(x).any(-1)]
    ends = np.cumsum([int(np.prod(core)) for core in row.cores])[:-1]
    parts = zip(np.split(x, ends, axis=1), row.cores, strict=True)
    inputs = [part.reshape(len(x), *core) for part, core in parts]
    ct = np.ones((len(x), *_core(row)), dtype)
    for y in run(*map(side.array, [ct, *inputs])):
        assert np.isnan(side.numpy(y)).all()


def hessian(side, row, run, dtype, length):
    """The same of forward mode and of its derivative, forward over reverse."""
    inputs = hard_inputs(row, dtype)
    count, core = len(inputs[0]), _core(row)
    seeds = list(_one_hot([core], count, dtype))
    moves = list(_one_hot([x.shape[1:] for x in inputs], count, dtype))
    groups = [[*ct, *t, *inputs] for ct in seeds for t in moves]
    passes = in_vectors(side, run, _stacked(groups), length)
    return [_second_parts(outs, count, len(seeds), len(moves)) for outs in passes]


def _second_parts(outs, count, seeds, moves):
    value, *grads = (y.reshape(seeds, moves, count, -1) for y in outs)
    rows = np.concatenate(grads, -1)  # output, direction, sample, argument
    return {
        "forward": np.moveaxis(value[0], 0, -1),
        "second, fwd over rev": np.transpose(rows, (2, 0, 3, 1)),
    }
