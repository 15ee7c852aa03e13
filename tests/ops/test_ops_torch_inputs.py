"""Dtypes, devices, memory layouts and sizes of the inputs of every op in torch."""

import numpy as np
import pytest
import torch

from tests import side_torch
from tests.closeness import assert_close
from tests.op_table import ROWS
from tests.properties import random_like
from tests.references.expected import Expected
from tests.suite import each_row, line

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
TOLERANCE = {F64: 1e-11, F32: 2e-5, F16: 2e-3, BF16: 2e-2}
# rows with a scalar argument next to another one
WITH_SCALARS = [row for row in ROWS if len(row.boxes) > 1 and () in row.cores]


def leaves(row, dtype, batch=(2,)):
    return [side_torch.array(x).to(dtype).requires_grad_() for x in row.inputs(batch)]


def check(row, x, got, ct):
    """Value and gradients of leaves x against the truth at the values that they hold."""
    expected = Expected(row, [v.detach().double().numpy() for v in x])
    rtol = TOLERANCE[got.dtype]
    assert_close(got, expected.value(), "value", rtol=rtol, floor=1.0)
    got.backward(ct)
    want = expected.pull(ct.double().expand(got.shape).numpy())
    for i, (v, w) in enumerate(zip(x, want, strict=True)):
        assert v.grad.dtype == v.dtype and v.grad.shape == v.shape
        assert_close(v.grad, w, f"gradient {i}", rtol=max(rtol, TOLERANCE[v.dtype]), floor=1.0)


@line("dtypes")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@each_row
def test_the_dtype_of_the_inputs_is_kept(row, dtype):
    x = leaves(row, dtype)
    got = side_torch.function(row.op)(*x)
    assert got.dtype == dtype
    check(row, x, got, torch.ones_like(got))


@line("dtypes")
@each_row
def test_low_precision_is_computed_in_float32(row):
    x = [v.detach() for v in leaves(row, BF16)]
    f = side_torch.function(row.op)
    assert torch.equal(f(*x), f(*[v.float() for v in x]).to(BF16))


@line("dtypes")
@each_row
def test_mixed_dtypes_promote_as_torch_does(row):
    x = leaves(row, F64)
    x = [v if i % 2 else v.detach().float().requires_grad_() for i, v in enumerate(x)]
    got = side_torch.function(row.op)(*x)
    assert got.dtype == (F64 if len(x) > 1 else F32)
    check(row, x, got, torch.ones_like(got))


@line("dtypes")
@pytest.mark.parametrize("row", WITH_SCALARS, ids=lambda row: row.name)
def test_numbers_and_0d_tensors_do_not_promote(row):
    x = [v.detach() for v in leaves(row, F32)]
    scalars = [i for i, core in enumerate(row.cores) if not core]
    value = [v[0].item() if i == scalars[-1] else v for i, v in enumerate(x)]
    assert side_torch.function(row.op)(*value).dtype == F32
    zero_d = [v[0].double() if i == scalars[-1] else v for i, v in enumerate(x)]
    assert side_torch.function(row.op)(*zero_d).dtype == F32


@line("autocast or x64 off")
@each_row
def test_inside_autocast_the_op_runs_in_float32(row):
    x = leaves(row, F32)
    with torch.autocast("cpu", dtype=BF16):
        got = side_torch.function(row.op)(*x)
        assert got.dtype == F32
        check(row, x, got, torch.ones_like(got))


@line("for cuda")
@each_row
def test_the_meta_device_gives_shape_and_dtype_forward_and_back(row):
    x = [v.detach().to("meta").requires_grad_() for v in leaves(row, F32)]
    got = side_torch.function(row.op)(*x)
    want = Expected(row, row.inputs((2,))).value()
    assert got.device.type == "meta" and got.dtype == F32 and tuple(got.shape) == want.shape
    got.sum().backward()
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
    raw = [lay_out(v.detach(), how) for v in leaves(row, F64, (2, 3))]
    x = [v.detach().requires_grad_() for v in raw]
    got = side_torch.function(row.op)(*x)
    ct = lay_out(side_torch.array(random_like(tuple(got.shape), 7)), how)
    check(row, x, got, ct)


@line("odd inputs")
@each_row
def test_a_cotangent_with_stride_0_is_ordinary(row):
    x = leaves(row, F64)
    got = side_torch.function(row.op)(*x)
    check(row, x, got, torch.tensor(0.7, dtype=F64).expand(got.shape))


@line("odd inputs")
@pytest.mark.parametrize("batch", [(), (1,), (1, 1), (0,)], ids=str)
@each_row
def test_small_batches_are_ordinary(row, batch):
    x = leaves(row, F64, batch)
    got = side_torch.function(row.op)(*x)
    check(row, x, got, torch.ones_like(got))


@line("nothing unasked")
@each_row
def test_a_tensor_that_needs_no_gradient_gets_none(row):
    x = leaves(row, F64)
    x[0].requires_grad_(False)
    got = side_torch.function(row.op)(*x)
    assert got.requires_grad == (len(x) > 1)
    if len(x) > 1:
        got.sum().backward()
        assert x[0].grad is None and all(np.isfinite(v.grad).all() for v in x[1:])


@each_row
def test_the_inputs_are_not_written_to(row):
    x = leaves(row, F64)
    before = [v.detach().clone() for v in x]
    side_torch.function(row.op)(*x).sum().backward()
    assert all(torch.equal(v, b) for v, b in zip(x, before, strict=True))
