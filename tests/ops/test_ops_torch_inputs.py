"""Dtypes, devices, memory layouts and sizes of the inputs of every op in torch."""

import numpy as np
import pytest
import torch

from tests import side_torch
from tests.closeness import assert_close
from tests.op_table import ROWS
from tests.properties import arrays, random_like
from tests.references.expected import Expected
from tests.suite import each_row, line

TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}
BOUNDS = {**TOLERANCE, "complex128": 1e-11, "complex64": 2e-5}
# rows with a scalar argument next to another one
WITH_SCALARS = [row for row in ROWS if len(row.boxes) > 1 and () in row.cores]


def leaves(row, dtype, batch=(2,)):
    return [side_torch.cast(x, dtype).requires_grad_() for x in arrays(side_torch, row, batch)]


def dtypes(tensors):
    return [side_torch.dtype_of(x) for x in tensors]


def check(row, x, got, ct):
    """Value and gradients of leaves x against the truth at the values that they hold."""
    exact = [side_torch.numpy(side_torch.cast(v, "float64")) for v in x]
    expected = Expected(row, exact, side_torch.CONJUGATES)
    rtol, *bounds = (BOUNDS[name] for name in dtypes([got, *x]))
    assert_close(got, expected.value(), "value", rtol=rtol, floor=1.0)
    got.backward(ct)
    want = expected.pull(side_torch.numpy(side_torch.cast(ct, "float64").expand(got.shape)))
    for i, (v, w, bound) in enumerate(zip(x, want, bounds, strict=True)):
        assert v.grad.dtype == v.dtype and v.grad.shape == v.shape
        assert_close(v.grad, w, f"gradient {i}", rtol=max(rtol, bound), floor=1.0)


@line("dtypes")
@pytest.mark.parametrize("dtype", TOLERANCE)
@each_row
def test_the_dtype_of_the_inputs_is_kept(row, dtype):
    x = leaves(row, dtype)
    got = side_torch.function(row.op)(*x)
    assert dtypes([got]) == row.dtypes(dtype)[-1:]
    check(row, x, got, torch.ones_like(got))


@line("dtypes")
@each_row
def test_low_precision_is_computed_in_float32(row):
    x = [v.detach() for v in leaves(row, "bfloat16")]
    f = side_torch.function(row.op)
    got, want = f(*x), f(*[side_torch.cast(v, "float32") for v in x])
    assert torch.equal(got, want.to(got.dtype))


@line("dtypes")
@each_row
def test_mixed_dtypes_promote_as_torch_does(row):
    both = zip(leaves(row, "float32"), leaves(row, "float64"), strict=True)
    x = [pair[i % 2] for i, pair in enumerate(both)]
    got = side_torch.function(row.op)(*x)
    assert dtypes([got]) == row.dtypes("float64" if len(x) > 1 else "float32")[-1:]
    check(row, x, got, torch.ones_like(got))


@line("dtypes")
@pytest.mark.parametrize("row", WITH_SCALARS, ids=lambda row: row.name)
def test_numbers_and_0d_tensors_do_not_promote(row):
    x = [v.detach() for v in leaves(row, "float32")]
    single = row.dtypes("float32")[-1:]
    scalars = [i for i, core in enumerate(row.cores) if not core]
    value = [v[0].item() if i == scalars[-1] else v for i, v in enumerate(x)]
    assert dtypes([side_torch.function(row.op)(*value)]) == single
    double = side_torch.cast(x[scalars[-1]][0], "float64")
    zero_d = [double if i == scalars[-1] else v for i, v in enumerate(x)]
    assert dtypes([side_torch.function(row.op)(*zero_d)]) == single


@line("autocast or x64 off")
@each_row
def test_inside_autocast_the_op_runs_in_float32(row):
    x = leaves(row, "float32")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = side_torch.function(row.op)(*x)
        assert dtypes([got]) == row.dtypes("float32")[-1:]
        check(row, x, got, torch.ones_like(got))


@line("for cuda")
@each_row
def test_the_meta_device_gives_shape_and_dtype_forward_and_back(row):
    x = [v.detach().to("meta").requires_grad_() for v in leaves(row, "float32")]
    got = side_torch.function(row.op)(*x)
    want = Expected(row, row.inputs((2,))).value()
    assert got.device.type == "meta" and tuple(got.shape) == want.shape
    assert dtypes([got]) == row.dtypes("float32")[-1:]
    got.backward(torch.ones_like(got))
    assert all(v.grad.device.type == "meta" and v.grad.shape == v.shape for v in x)


def lay_out(x, how):
    """The same values in memory that is not one contiguous block."""
    if how == "transposed":
        order = tuple(range(x.dim()))[::-1]
        return x.permute(order).contiguous().permute(order)
    if how == "sliced":
        return torch.stack([x, x], -1)[..., 0]
    return x[:1].expand(x.shape)


@line("odd inputs")
@pytest.mark.parametrize("how", ["transposed", "sliced", "expanded"])
@each_row
def test_strided_inputs_and_cotangents_are_ordinary(row, how):
    raw = [lay_out(v.detach(), how) for v in leaves(row, "float64", (2, 3))]
    x = [v.detach().requires_grad_() for v in raw]
    got = side_torch.function(row.op)(*x)
    ct = lay_out(side_torch.array(random_like(side_torch.numpy(got), 7)), how)
    check(row, x, got, ct)


@line("odd inputs")
@each_row
def test_a_cotangent_with_stride_0_is_ordinary(row):
    x = leaves(row, "float64")
    got = side_torch.function(row.op)(*x)
    check(row, x, got, torch.tensor(0.7, dtype=got.dtype).expand(got.shape))


@line("odd inputs")
@pytest.mark.parametrize("batch", [(), (1,), (1, 1), (0,)], ids=str)
@each_row
def test_small_batches_are_ordinary(row, batch):
    x = leaves(row, "float64", batch)
    got = side_torch.function(row.op)(*x)
    check(row, x, got, torch.ones_like(got))


@line("nothing unasked")
@each_row
def test_a_tensor_that_needs_no_gradient_gets_none(row):
    x = leaves(row, "float64")
    x[0].requires_grad_(False)
    got = side_torch.function(row.op)(*x)
    assert got.requires_grad == (len(x) > 1)
    if len(x) > 1:
        got.backward(torch.ones_like(got))
        assert x[0].grad is None and all(np.isfinite(v.grad).all() for v in x[1:])


@each_row
def test_the_inputs_are_not_written_to(row):
    x = leaves(row, "float64")
    before = [v.detach().clone() for v in x]
    got = side_torch.function(row.op)(*x)
    got.backward(torch.ones_like(got))
    assert all(torch.equal(v, b) for v, b in zip(x, before, strict=True))
