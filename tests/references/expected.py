"""What an op must give for whole batches, in NumPy, from the mpmath closed forms.

The derivatives of each sample come from `truth`; broadcasting, products with cotangents and
tangents, and the sums that undo broadcasting are done here, apart from every framework.
In between everything complex is in pairs of real numbers, as in `tests.pairs`.
"""

import numpy as np

from tests.pairs import NUMPY, split, whole

DIGITS = 40  # enough at moderate inputs


class Expected:
    """The value and the derivatives of a row's op at these inputs (NumPy arrays).

    Gradients are plain transposes, as in JAX; `conjugate`: as torch defines them, so that
    both ends of the transposition are conjugated.  Those of real inputs are real parts.
    """

    def __init__(self, row, inputs, conjugate=False):
        self.paired, self.paired_out = row.complex_inputs, row.complex_result
        self.mirror = np.asarray if conjugate else np.conj
        (out,) = row.op.signature.outputs[: row.op.visible]
        self.core_out = _in_pairs([row.sizes[dim] for dim in out], self.paired_out)
        self.cores = list(map(_in_pairs, row.cores, self.paired))
        self.shapes = list(map(_in_pairs, [x.shape for x in inputs], self.paired))
        given = list(zip(inputs, row.cores, strict=True))
        self.batch = np.broadcast_shapes(*[x.shape[: x.ndim - len(core)] for x, core in given])
        count = int(np.prod(self.batch))
        spread = [np.broadcast_to(x, self.batch + c).reshape(count, *c) for x, c in given]
        self.samples = [row.exact([x[i] for x in spread], DIGITS) for i in range(count)]
        self.n_in = sum(int(np.prod(core)) for core in self.cores)
        self.n_out = int(np.prod(self.core_out))

    def value(self):
        return self._result(self._stack(0, (self.n_out,)))

    def jacobians(self):
        """Of one unbatched call: for each argument, output shape + input shape."""
        parts = self._split(self.samples[0][1])
        return [
            part.reshape(self.core_out + core) for part, core in zip(parts, self.cores, strict=True)
        ]

    def pull(self, ct):
        """The gradients for a cotangent of the output's shape."""
        first = self._stack(1, (self.n_out, self.n_in))
        return self._gather(np.einsum("so,soi->si", self._seeds(ct), first))

    def push(self, tangents):
        """The tangent of the output."""
        first = self._stack(1, (self.n_out, self.n_in))
        return self._result(np.einsum("soi,si->so", first, self._flat(tangents)))

    def pull_second(self, ct, tangents):
        """The derivative of `pull(ct)` along the tangents."""
        second = self._stack(2, (self.n_out, self.n_in, self.n_in))
        found = np.einsum("so,soij,sj->si", self._seeds(ct), second, self._flat(tangents))
        return self._gather(found)

    def hessian(self, ct):
        """Of the function whose gradients are `pull(ct)`, of one unbatched call, as one matrix."""
        return np.tensordot(self._seeds(ct)[0], self.samples[0][2], 1)

    def _stack(self, order, shape):
        return np.array([s[order] for s in self.samples]).reshape(len(self.samples), *shape)

    def _split(self, flat):
        sizes = [int(np.prod(core)) for core in self.cores]
        return np.split(flat, np.cumsum(sizes)[:-1], axis=-1)

    def _seeds(self, ct):
        return _split(self.mirror(ct), self.paired_out).reshape(len(self.samples), self.n_out)

    def _result(self, flat):
        return whole(NUMPY, flat.reshape(self.batch + self.core_out), self.paired_out)

    def _flat(self, arrays):
        count, spread = len(self.samples), []
        for x, core, paired in zip(arrays, self.cores, self.paired, strict=True):
            x = np.broadcast_to(_split(x, paired), self.batch + core)
            spread.append(x.reshape(count, int(np.prod(core))))
        return np.concatenate(spread, axis=1)

    def _gather(self, flat):
        """Per argument, at the argument's own shape: summed where it was broadcast."""
        found = []
        each = zip(self._split(flat), self.cores, self.shapes, self.paired, strict=True)
        for part, core, shape, paired in each:
            part = part.reshape(self.batch + core)
            part = part.sum(tuple(range(part.ndim - len(shape))))
            axes = tuple(a for a, n in enumerate(shape) if n == 1 and part.shape[a] != 1)
            found.append(self.mirror(whole(NUMPY, part.sum(axes, keepdims=True), paired)))
        return found


def _in_pairs(shape, paired):
    return (*shape, 2) if paired else tuple(shape)


def _split(x, paired):
    return split(NUMPY, np.asarray(x, np.complex128 if paired else np.float64))
