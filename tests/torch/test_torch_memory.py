"""Host ops in torch see the memory of the tensors: no copy, no storage pinned, nothing dangling."""

import numpy as np
import pytest
import torch

from twingrad.interop import Cache, Host, define, from_numpy
from twingrad.interop.torch import bind

DTYPES = [torch.bool, torch.int8, torch.int32, torch.int64, torch.uint8]
DTYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128]
close = torch.testing.assert_close


def doubled(seen=None, keep=False):
    """2 x on the host; `seen` records addresses or, with `keep`, the arrays themselves."""

    @define("(n)->(n)", host=True)
    def doubled(xp, x):
        if seen is not None:
            seen.append(x if keep else (x.ctypes.data, x.flags.writeable))
        return 2.0 * x

    def rule(xp, ct, out, x):
        if seen is not None:
            seen.append(ct if keep else (ct.ctypes.data, ct.flags.writeable))
        return 2 * ct

    doubled.def_vjp(rule)
    return bind(doubled)


def test_the_host_function_reads_the_tensors_own_memory():
    seen = []
    f, x = doubled(seen), torch.ones(4, 3)
    y = f(x.requires_grad_())
    ct = torch.ones(4, 3)
    y.backward(ct)
    assert seen == [(x.data_ptr(), False), (ct.data_ptr(), False)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_storages_can_be_resized_after_a_call(dtype):
    for x in (torch.ones(4, 3), torch.ones(3, 4).T, torch.ones(0, 3), torch.ones(3)):
        x = x.to(dtype)
        expected = 2.0 * x
        close(doubled()(x), expected, check_dtype=False)
        x.untyped_storage().resize_(4096)
        x.resize_(7, 5)


def test_storages_of_zero_dimensional_scalars_and_lazy_ones_can_be_resized():
    f = bind(from_numpy(lambda x: 2 * x, signature="()->()"))
    scalar = torch.tensor(3.0)
    assert f(scalar) == 6
    scalar.resize_(5)
    z = torch.tensor([1 + 2j, 3 - 1j])
    close(f(z.conj()), (2 * z.conj()).resolve_conj())
    close(f(z.conj().imag), (2 * z.conj().imag).resolve_neg())
    z.resize_(5)


def test_storages_of_parameters_and_gradients_can_be_resized():
    w = torch.nn.Parameter(torch.ones(3))
    out = doubled()(w)
    out.sum().backward()
    close(w.grad, torch.full((3,), 2.0))
    w.untyped_storage().resize_(0)


@pytest.mark.parametrize("fails", [False, True])
def test_memory_that_a_host_function_keeps_is_pinned(fails):
    kept = []

    @define("(n)->(n)", host=True)
    def keeper(xp, x):
        kept.append(x[:, 1:])
        if fails:
            raise ZeroDivisionError
        return 2 * x

    x = torch.ones(4, 3)
    if fails:
        with pytest.raises(ZeroDivisionError):
            bind(keeper)(x)
    else:
        bind(keeper)(x)
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(1000)
    assert (kept[0] == 1).all()


def test_a_result_shares_no_memory_with_what_the_host_function_keeps():
    cache = Cache(4)

    def f(x):
        return cache.get(lambda x: 2 * x, x)

    f = bind(from_numpy(f, signature="(n)->(n)", vjp=lambda ct, x: cache.get(np.copy, ct)))
    x = torch.ones(2, 3, requires_grad=True)
    first = f(x)
    (g,) = torch.autograd.grad(first, x, torch.ones(2, 3))
    with torch.no_grad():
        first += 1
        g += 1
    second = f(x)
    close(second, torch.full((2, 3), 2.0))
    close(torch.autograd.grad(second, x, torch.ones(2, 3))[0], torch.ones(2, 3))


def test_inference_tensors_and_bfloat16():
    with torch.inference_mode():
        close(doubled()(torch.ones(3)), torch.full((3,), 2.0))
    x = torch.ones(3, dtype=torch.bfloat16)
    close(doubled()(x), 2 * x)
    one = bind(from_numpy(lambda x: 2 * x, signature="()->()", host=Host(vectorize=True)))
    close(one(x), 2 * x)
