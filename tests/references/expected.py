"""What an op must give for whole batches, in NumPy, from the mpmath closed forms.

The derivatives of each sample come from `truth`; broadcasting, products with cotangents and
tangents, and the sums that undo broadcasting are done here, apart from every framework.
"""

import numpy as np

from tests.references import truth

DIGITS = 40  # enough at moderate inputs


class Expected:
    """The value and the derivatives of a row's op at these inputs (NumPy arrays).

    Gradients are plain transposes, as in JAX; `conjugate`: as torch defines them, so that
    both ends of the transposition are conjugated.  Those of real inputs are real parts.
    """

    def __init__(self, row, inputs, conjugate=False):
        self.shapes, self.complex_inputs = [x.shape for x in inputs], row.complex_inputs
        self.dtype = row.dtypes("float64")[-1]
        self.conjugate = np.conj if conjugate else lambda x: x
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
        """Of one unbatched call: for each argument, output shape + input shape.

        Real and imaginary parts are one more axis of size 2, at the end of either shape.
        """
        first = self._in_parts()[1]
        pairs = [(2,) if c else () for c in self.complex_inputs]
        shapes = [(*core, *pair) for core, pair in zip(self.cores, pairs, strict=True)]
        out = self.core_out if len(first) == self.n_out else (*self.core_out, 2)
        parts = np.split(first, np.cumsum([int(np.prod(s)) for s in shapes])[:-1], axis=-1)
        return [part.reshape(out + shape) for part, shape in zip(parts, shapes, strict=True)]

    def pull(self, ct):
        """The gradients for a cotangent of the output's shape."""
        first = self._stack(1, (self.n_out, self.n_in))
        return self._gather(np.einsum("so,soi->si", self._seeds(ct), first))

    def push(self, tangents):
        """The tangent of the output."""
        first = self._stack(1, (self.n_out, self.n_in))
        found = np.einsum("soi,si->so", first, self._flat(tangents))
        return found.reshape(self.batch + self.core_out)

    def pull_second(self, ct, tangents):
        """The derivative of `pull(ct)` along the tangents."""
        second = self._stack(2, (self.n_out, self.n_in, self.n_in))
        found = np.einsum("so,soij,sj->si", self._seeds(ct), second, self._flat(tangents))
        return self._gather(found)

    def hessian(self, ct):
        """Of the real part of sum(ct * f) in all inputs of one unbatched call, as one matrix.

        `conjugate`: of sum(conj(ct) * f).  Real and imaginary parts are inputs by themselves.
        """
        second = self._in_parts()[2]
        seeds = self._seeds(ct)[0].conj()
        pairs = [seeds.real, seeds.imag] if len(second) > self.n_out else [seeds.real]
        return np.tensordot(np.stack(pairs, -1).ravel(), second, 1)

    def _seeds(self, ct):
        return self.conjugate(np.asarray(ct)).reshape(len(self.samples), self.n_out)

    def _in_parts(self):
        sizes = [int(np.prod(core)) for core in self.cores]
        return truth.in_parts(self._first_sample(), np.repeat(self.complex_inputs, sizes))

    def _first_sample(self):
        value, first, second = self.samples[0]
        return (
            value.ravel(),
            first.reshape(self.n_out, -1),
            second.reshape(self.n_out, self.n_in, -1),
        )

    def _stack(self, order, shape):
        found = np.array([s[order] for s in self.samples], self.dtype)
        return found.reshape(len(self.samples), *shape)

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
        parts = (
            self.conjugate(part) if c else part.real
            for part, c in zip(self._split(flat), self.complex_inputs, strict=True)
        )
        for part, core, shape in zip(parts, self.cores, self.shapes, strict=True):
            part = part.reshape(self.batch + core)
            part = part.sum(tuple(range(part.ndim - len(shape))))
            axes = tuple(a for a, n in enumerate(shape) if n == 1 and part.shape[a] != 1)
            found.append(part.sum(axes, keepdims=True))
        return found
