"""Wrong rules, seeded on purpose: the suite must catch every one of them.

A fault is a copy of a table row's op with a wrong vjp, jvp or forward function, and the
properties that must fail on it.  Most edit what the right rule returns; the three mistakes of
the usually posted truncated-mixture gradient, which pass a glance, are written out.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.copies import copy
from tests.op_row import Row
from tests.op_table import ROWS
from twingrad.interop import Op
from twingrad.interop.op.signature import as_tuple

BY_NAME = {row.name: row for row in ROWS}
VJP = ("first derivative", "each argument alone", "eager", "vmap of grad", "grad of vmap")
JVP = ("forward mode", "each argument alone", "eager")


@dataclass(frozen=True)
class Fault:
    """`make(op)` is the wrong copy; each of `caught_by` must fail on it."""

    name: str
    row: str
    make: Callable[[Op], Op]
    caught_by: tuple[str, ...]

    def faulty_row(self) -> Row:
        row = BY_NAME[self.row]
        return replace(row, op=self.make(row.op))


def edit_vjp(change):
    """A fault whose vjp returns change(xp, gradients, inputs) in place of the gradients."""

    def make(op):
        @functools.wraps(op.vjp)
        def vjp(xp, ct, out, *inputs, **static):
            found = list(as_tuple(op.vjp(xp, ct, out, *inputs, **static)))
            change(xp, found, inputs)
            return tuple(found)

        return copy(op, vjp=vjp)

    return make


def edit_jvp(change):
    """A fault whose jvp gets change(xp, tangents, inputs) in place of the tangents."""

    def make(op):
        @functools.wraps(op.jvp)
        def jvp(xp, tangents, out, *inputs, **static):
            found = list(tangents)
            change(xp, found, inputs)
            return op.jvp(xp, tuple(found), out, *inputs, **static)

        return copy(op, jvp=jvp)

    return make


def times(factor, i):
    def change(xp, values, inputs):
        values[i] = factor * values[i]

    return change


def times_scales(power):
    """The gradients of the means, multiplied by s once or divided by it once more."""

    def change(xp, values, inputs):
        values[0] = values[0] * inputs[1] ** power

    return change


def from_other_rule(op):
    """A jvp that is right at first order for an op that has none; then it can be wrong."""

    def jvp(xp, tangents, out, x):
        (dot,) = tangents
        return op.vjp(xp, (dot, None), out, x), op.vjp(xp, (0 * dot, dot), out, x)

    return copy(op, jvp=jvp)


def swapped(xp, values, inputs):
    values[0], values[1] = values[1], values[0]


def reversed_axis(xp, values, inputs):
    values[0] = xp.flip(values[0], axis=-1)


def rolled(xp, values, inputs):
    values[0] = xp.roll(values[0], 1, axis=-1)


def conjugated(xp, values, inputs):
    values[1] = xp.conj(values[1])


def real_part(xp, values, inputs):
    values[2] = xp.real(values[2]) + 0 * values[2]


def other_constants(op):
    """A vjp with the constants 0.1 per cent larger."""

    @functools.wraps(op.vjp)
    def vjp(xp, ct, out, *inputs, **static):
        return op.vjp(xp, ct, out, *inputs, **{n: 1.001 * x for n, x in static.items()})

    return copy(op, vjp=vjp)


def drop_hidden(op):
    """A vjp that ignores what flows back through the hidden outputs: first order is right."""

    def vjp(xp, ct, out, *inputs):
        kept = ct[: op.visible] + (None,) * op.hidden
        return op.vjp(xp, kept, out, *inputs)

    return copy(op, vjp=vjp)


def _normalizer(out):
    return out[1], out[2]  # log Z, and D_j / Z


def transposed(op):
    """J g in place of J^T g for the weights' own gradient."""

    def vjp(xp, ct, out, *inputs):
        found = list(op.vjp(xp, ct, out, *inputs))
        log_z, ratio = _normalizer(out)
        z = xp.exp(log_z)[..., None]
        found[2] = ct[0] / z - out[0] * xp.sum(ct[0] * ratio, axis=-1)[..., None]
        return tuple(found)

    return copy(op, vjp=vjp)


def cross_terms_dropped(op):
    """Posted mistake 1: each w_i differentiated as if it depended on its own p_i, m_i, s_i only.

    The cotangent-weighted sum c = sum_i g_i w_i is replaced by g_i w_i, component by component.
    """

    def vjp(xp, ct, out, *inputs):
        g, w = ct[0], out[0]
        total = xp.sum(g * w, axis=-1)[..., None]
        found = list(op.vjp(xp, ct, out, *inputs))
        _, ratio = _normalizer(out)
        found[0], found[1] = (part * (g * w / total) for part in found[:2])
        found[2] = found[2] + (total - g * w) * ratio
        return tuple(found)

    return copy(op, vjp=vjp)


def one_sum_over_the_batch(op):
    """c summed over the batch as well: right without a batch."""

    def vjp(xp, ct, out, *inputs):
        g, w = ct[0], out[0]
        right = xp.sum(g * w, axis=-1)[..., None]
        found = list(op.vjp(xp, ct, out, *inputs))
        found[0] = found[0] * (xp.sum(g * w) / right)
        return tuple(found)

    return copy(op, vjp=vjp)


def eps_in_forward(op):
    """Posted mistake 3: s + eps in the forward function, and s in the rule."""

    def vjp(xp, ct, out, means, scales, *rest):
        right = op.forward(xp, means, scales, *rest)
        return op.vjp(xp, ct, right, means, scales, *rest)

    def forward(xp, means, scales, weights, lower, upper):
        return op.forward(xp, means, scales + 1e-3, weights, lower, upper)

    return copy(op, forward=forward, vjp=vjp)


def not_transposed(op):
    """The adjoint of a solver solved with the matrix itself, and not with its transpose."""

    def vjp(xp, ct, out, *inputs, transpose):
        *matrix, _ = inputs
        wrong = op(xp, *matrix, ct, transpose=transpose)
        return (*op.vjp(xp, ct, out, *inputs, transpose=transpose)[:-1], wrong)

    return copy(op, vjp=vjp)


def transposed_gradient(op):
    """The gradient of the first matrix, transposed."""

    def change(xp, values, inputs):
        values[0] = xp.matrix_transpose(values[0])

    return edit_vjp(change)(op)


WEIGHTS = "truncated_mixture_weights"
LOG_Z = "truncated_mixture_log_normalizer"


def _argument_faults():
    """A factor 2, a sign and 0.1 per cent, in each argument of some ops, in both rules."""
    for row in ("log1mexp", "log_ndtr_diff", LOG_Z, "rosenbrock"):
        for i in range(len(BY_NAME[row].boxes)):
            for label, factor in (("twice", 2.0), ("minus", -1.0), ("0.1 per cent", 1.001)):
                yield Fault(f"vjp {label}, argument {i}", row, edit_vjp(times(factor, i)), VJP)
                if BY_NAME[row].op.jvp:
                    wrong = edit_jvp(times(factor, i))
                    yield Fault(f"jvp {label}, argument {i}", row, wrong, JVP)


FAULTS = [
    *_argument_faults(),
    Fault(
        "jvp twice, where the right op has none",
        "log1mexp",
        lambda op: edit_jvp(times(2.0, 0))(from_other_rule(op)),
        JVP,
    ),
    Fault("posted: cross terms dropped", WEIGHTS, cross_terms_dropped, VJP),
    Fault("posted: /s twice", WEIGHTS, edit_vjp(times_scales(-1)), VJP),
    Fault("posted: eps in the forward only", WEIGHTS, eps_in_forward, ("value", "eager")),
    Fault("missing /s", LOG_Z, edit_vjp(times_scales(1)), VJP),
    Fault("missing /s in the jvp", LOG_Z, edit_jvp(times_scales(1)), JVP),
    Fault("transposed", WEIGHTS, transposed, VJP),
    Fault("lower and upper swapped", "log_ndtr_diff", edit_vjp(swapped), VJP),
    Fault("wrong order along the axis", "rosenbrock", edit_vjp(reversed_axis), VJP),
    Fault("transpose forgotten", "sparse_solve", not_transposed, VJP),
    Fault("transpose forgotten", "solve_sylvester", not_transposed, VJP),
    Fault("gradient transposed", "solve_sylvester", transposed_gradient, VJP),
    Fault("values 0.1 per cent", "sparse_solve", edit_vjp(times(1.001, 0)), VJP),
    Fault("jvp 0.1 per cent in B", "solve_sylvester", edit_jvp(times(1.001, 1)), JVP),
    Fault("shifted", "convolve", edit_vjp(rolled), VJP),
    Fault("jvp 0.1 per cent in y", "convolve", edit_jvp(times(1.001, 1)), JVP),
    Fault("the other convention", "transfer", edit_vjp(conjugated), VJP),
    Fault("jvp of the conjugate", "transfer", edit_jvp(conjugated), JVP),
    Fault("imaginary part lost", "transfer", edit_vjp(real_part), VJP),
    Fault("twice, in a structure", "decay", edit_vjp(times(2.0, 0)), VJP),
    Fault("jvp 0.1 per cent, in a structure", "decay", edit_jvp(times(1.001, 1)), JVP),
    Fault("of another grid", "density", other_constants, VJP),
    Fault("not conjugated", "intensity", edit_vjp(conjugated), VJP),
    Fault("jvp of the conjugate", "intensity", edit_jvp(conjugated), JVP),
    Fault("the transform backwards", "spectrum", edit_vjp(reversed_axis), (*VJP, "transposition")),
    Fault("not the adjoint", "integrals", edit_vjp(reversed_axis), (*VJP, "transposition")),
    Fault(
        "summed over the batch",
        WEIGHTS,
        one_sum_over_the_batch,
        # not by vmap of grad in torch: there the rule sees one sample at a time
        ("first derivative", "each argument alone", "grad of vmap"),
    ),
    Fault(
        "hidden cotangents dropped",
        LOG_Z,
        drop_hidden,
        ("second derivative", "second derivative of a batch", "vmap of hessian"),
    ),
    Fault(
        "hidden cotangents dropped in one argument pair",
        "log_ndtr_diff",
        drop_hidden,
        ("second derivative", "third derivative"),
    ),
]
