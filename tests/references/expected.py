"""What an op must give for whole batches, in NumPy, from the mpmath closed forms.

The derivatives of each sample come from `truth`; broadcasting, products with cotangents and
tangents, and the sums that undo broadcasting are done here, apart from every framework.
"""

import numpy as np

from tests.references import truth

DIGITS = 40  # enough at moderate inputs


class Expected:
    """The value and the derivatives of a row's op at these inputs (NumPy arrays)."""

    def __init__(self, row, inputs):
        self.shapes = [x.shape for x in inputs]
        cores, (out,) = row.cores, row.op.signature.outputs[: row.op.visible]
        split = [x.ndim - len(core) for x, core in zip(inputs, cores, strict=True)]
        heads = [x.shape[:n] for x, n in zip(inputs, split, strict=True)]
        self.batch = np.broadcast_shapes(*heads)
        self.cores = cores
        self.core_out = tuple(row.sizes[dim] for dim in out)
        self.rank = len(self.core_out)
        count = int(np.prod(self.batch))
        spread = [
            np.broadcast_to(x, self.batch + core).reshape(count, *core)
            for x, core in zip(inputs, cores, strict=True)
        ]
        self.samples = [
            truth.evaluate(row.truth, [x[i] for x in spread], DIGITS) for i in range(count)
        ]
        self.n_in = sum(int(np.prod(core)) for core in cores)
        self.n_out = int(np.prod(self.core_out))

    def value(self):
        return self._stack(0, (self.n_out,)).reshape(self.batch + self.core_out)

    def jacobians(self):
        """Of one unbatched call: for each argument, output shape + input shape."""
        parts = self._split(self.samples[0][1])
        return [
            part.reshape(self.core_out + core) for part, core in zip(parts, self.cores, strict=True)
        ]

    def pull(self, ct):
        """The gradients for a cotangent of the output's shape."""
        seeds = np.asarray(ct, np.float64).reshape(len(self.samples), self.n_out)
        first = self._stack(1, (self.n_out, self.n_in))
        return self._gather(np.einsum("so,soi->si", seeds, first))

    def push(self, tangents):
        """The tangent of the output."""
        first = self._stack(1, (self.n_out, self.n_in))
        found = np.einsum("soi,si->so", first, self._flat(tangents))
        return found.reshape(self.batch + self.core_out)

    def pull_second(self, ct, tangents):
        """The derivative of `pull(ct)` along the tangents."""
        seeds = np.asarray(ct, np.float64).reshape(len(self.samples), self.n_out)
        second = self._stack(2, (self.n_out, self.n_in, self.n_in))
        found = np.einsum("so,soij,sj->si", seeds, second, self._flat(tangents))
        return self._gather(found)

    def hessian(self, ct):
        """Of sum(ct * f) in all inputs of one unbatched call, as one matrix."""
        return np.tensordot(np.ravel(ct), self.samples[0][2], 1)

    def _stack(self, order, shape):
        return np.array([s[order] for s in self.samples]).reshape(len(self.samples), *shape)

    def _split(self, flat):
        sizes = [int(np.prod(core)) for core in self.cores]
        return np.split(flat, np.cumsum(sizes)[:-1], axis=-1)

    def _flat(self, arrays):
        count = len(self.samples)
        spread = [
            np.broadcast_to(x, self.batch + core).reshape(count, -1) if count else np.zeros((0, n))
            for x, core, n in zip(
                arrays, self.cores, [int(np.prod(c)) for c in self.cores], strict=True
            )
        ]
        return np.concatenate(spread, axis=1)

    def _gather(self, flat):
        """Per argument, at the argument's own shape: summed where it was broadcast."""
        found = []
        for part, core, shape in zip(self._split(flat), self.cores, self.shapes, strict=True):
            part = part.reshape(self.batch + core)
            part = part.sum(tuple(range(part.ndim - len(shape))))
            axes = tuple(a for a, n in enumerate(shape) if n == 1 and part.shape[a] != 1)
            found.append(part.sum(axes, keepdims=True))
        return found
