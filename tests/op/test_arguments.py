"""Arguments that are no dense arrays, and static parameters of compiled calls: named errors."""

import importlib
import warnings

import numpy as np
import pytest
import scipy.sparse

from tests import sample_ops
from twingrad.interop import ArgumentError, define

torch = pytest.importorskip("torch")

from twingrad.interop.torch import bind  # noqa: E402

X = torch.tensor([1.0, 2.0])


def other_kinds():
    eye, parts = torch.eye(2), [torch.ones(2), torch.ones(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "sparse_coo": eye.to_sparse(),
            "sparse_csr": eye.to_sparse_csr(),
            "sparse_csc": eye.to_sparse_csc(),
            "sparse_bsr": eye.to_sparse_bsr((1, 1)),
            "_mkldnn": eye.to_mkldnn(),
            "nested": torch.nested.nested_tensor(parts),
            "nested ": torch.nested.nested_tensor(parts, layout=torch.jagged),
            "quantized": torch.quantize_per_tensor(eye, 1.0, 0, torch.qint8),
        }


@pytest.mark.parametrize("name", other_kinds())
@pytest.mark.parametrize("make", [sample_ops.multiply, sample_ops.host_energy])
@pytest.mark.parametrize("place", [0, 1])
def test_a_tensor_that_is_not_dense_is_named(name, make, place):
    op = make()
    op = op[0] if isinstance(op, tuple) else op
    args = [torch.eye(2), torch.eye(2)]
    args[place] = other_kinds()[name]
    text = rf"{op.name} .*: {op.names[place]} is a tensor of another kind, (torch\.)?{name.strip()}"
    with pytest.raises(ArgumentError, match=text):
        bind(op)(*args)


@pytest.mark.compile
@pytest.mark.parametrize("name", sorted(set(other_kinds()) - {"sparse_csc", "sparse_bsr"}))
def test_a_tensor_that_is_not_dense_is_named_compiled(name):
    f = bind(sample_ops.multiply())
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"multiply .*: b is a tensor of another kind"):
        torch.compile(lambda *x: f(*x), backend="eager")(torch.eye(2), other_kinds()[name])


@pytest.mark.parametrize("make", [sample_ops.multiply, lambda: sample_ops.host_energy()[0]])
def test_sparse_matrices_of_scipy_and_jax_are_named(make):
    op, sparse = make(), scipy.sparse.eye(2)
    name = op.names[1]
    for framework, x in (("numpy", sparse), ("torch", sparse), ("jax", sparse)):
        f = importlib.import_module(f"twingrad.interop.{framework}").bind(op)
        with pytest.raises(ArgumentError, match=rf"{op.name} .*: {name} is a dia_matrix"):
            f(np.ones(2) if framework != "torch" else X, x)
    jax = pytest.importorskip("jax")
    from jax.experimental import sparse as jax_sparse

    f, x = f if framework == "jax" else None, jax_sparse.BCOO.fromdense(jax.numpy.eye(2))
    for call in (f, jax.jit(f)):
        with pytest.raises(ArgumentError, match=rf"{name} is a BCOO; .*todense"):
            call(jax.numpy.ones(2), x)


def apply_op():
    @define("()->()")
    def apply(xp, x, *, g):
        return g(x) if callable(g) else 2 * x

    apply.def_vjp(lambda xp, ct, out, x, *, g: 100 * ct)
    return apply


class Doubled:
    def __call__(self, x):
        return 2 * x


FUNCTIONS = [lambda x: 2 * x, Doubled(), torch.sin, frozenset({1})]
SLOW = [pytest.param(g, marks=pytest.mark.slow) for g in (torch.nn.Identity(), torch.special.erf)]


@pytest.mark.compile
@pytest.mark.parametrize("g", [*FUNCTIONS, *SLOW], ids=lambda g: type(g).__name__)
def test_a_function_as_static_parameter_of_a_compiled_call(g):
    """It runs outside of the graph; where there must be one graph our words say what to do."""
    f = bind(apply_op())
    for fullgraph in (False, True):
        torch._dynamo.reset()
        h = torch.compile(lambda x: f(x * 1, g=g) + 1, backend="eager", fullgraph=fullgraph)
        if fullgraph:
            with pytest.raises(Exception, match=r"apply \(\)->\(\): the static parameter 'g' is a"):
                h(X)
        else:
            x = X.clone().requires_grad_()
            h(x).sum().backward()
            assert torch.equal(h(X), f(X, g=g) + 1) and torch.equal(x.grad, 100 + 0 * X)


@pytest.mark.compile
@pytest.mark.parametrize("g", [[1.0], {1}, ({},)], ids=repr)
def test_containers_that_can_change_are_refused_compiled_as_they_are_in_eager(g):
    f = bind(apply_op())
    torch._dynamo.reset()
    with pytest.raises(ArgumentError, match=r"apply .*'g' is a static parameter.*hashable"):
        torch.compile(lambda x: f(x, g=g) + 1, backend="eager")(X)
    with pytest.raises(Exception, match=r"apply .*static parameter"):
        torch.compile(lambda x: f(x, g=g) + 1, backend="eager", fullgraph=True)(X)


@pytest.mark.compile
@pytest.mark.parametrize("make", [sample_ops.host_sin, sample_ops.power])
@pytest.mark.parametrize("again", [False, True])
def test_an_op_may_be_bound_in_a_compiled_function(make, again):
    op, want = make(), bind(make())(X)
    if again:
        bind(op)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(lambda x: bind(op)(x) * 1, backend="eager")(X), want)


@pytest.mark.compile
def test_the_first_bind_in_one_graph_says_to_bind_before():
    op = sample_ops.cube()
    torch._dynamo.reset()
    f = torch.compile(lambda x: bind(op)(x) * 1, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match=r"cube \(\)->\(\): bind an op before a compiled function"):
        f(X)
    bind(op)
    assert torch.equal(f(X), X**3)
