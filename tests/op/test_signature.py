"""The grammar of signatures, the shapes that follow from one, and the texts of shape errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import sample_ops
from twingrad.interop import ShapeError, Signature, SignatureError, define
from twingrad.interop.numpy import bind


@pytest.mark.parametrize(
    ("text", "inputs", "outputs"),
    [
        ("()->()", ((),), ((),)),
        ("(n),()->()", (("n",), ()), ((),)),
        ("(m,k),(k,n)->(m,n)", (("m", "k"), ("k", "n")), (("m", "n"),)),
        ("(k),()->(k),()", (("k",), ()), (("k",), ())),
        ("(3)->(3,3)", ((3,),), ((3, 3),)),
        (" ( n , m ) , ( ) -> ( m ) ", (("n", "m"), ()), (("m",),)),
        ("(n_in)->(2)", (("n_in",),), ((2,),)),
        ("(in),(in,out)->(out)", (("in",), ("in", "out")), (("out",),)),
        ("(n)->((n))", (("n",),), (("n",),)),
    ],
)
def test_valid_signatures_parse(text, inputs, outputs):
    found = Signature.parse(text)
    assert (found.inputs, found.outputs) == (inputs, outputs)
    again = Signature.parse(str(found))
    assert (again.inputs, again.outputs) == (inputs, outputs)


@pytest.mark.parametrize(
    "text",
    ["", "n->n", "(n)", "(n)->", "->()", "(n)(m)->()", "(n),->()", "(n,)->()", "(,n)->()"]
    + ["(n)=>()", "(n)->()->()", "((n)->()", "(n-)->()", "(-1)->()", "(n)->() x", "(n m)->()"]
    + ["(1n)->()", "(n?)->()", "(n/2)->()", "(n)->(n**2)", "(n)->(len(n))", "(n)->(n.m)"],
)
def test_invalid_signatures_are_refused_with_the_text(text):
    with pytest.raises(SignatureError, match="signature") as caught:
        Signature.parse(text)
    assert repr(text) in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("text", ["(n)->(m)", "()->(n)", "(n)->(n),(k,n)"])
def test_a_result_dimension_that_no_argument_has_is_refused(text):
    with pytest.raises(SignatureError, match="in no argument"):
        define(text)(lambda xp, *x: x)


def plan(text, *shapes):
    return Signature.parse(text).plan(shapes)


def test_a_plan_aligns_batches_of_unequal_rank():
    found = plan("(n),()->(n),()", (4, 1, 3), (5,))
    assert found.batch == (4, 5)
    assert found.aligned == ((4, 1, 3), (1, 5))
    assert found.full == ((4, 5, 3), (4, 5))
    assert found.summed == ((1,), (0,))
    assert found.outputs == ((4, 5, 3), (4, 5))
    assert found.padded


def test_a_plan_without_batches_has_nothing_to_do():
    found = plan("(n,m),(m)->(n)", (2, 3), (3,))
    assert (found.batch, found.summed, found.outputs) == ((), ((), ()), ((2,),))
    assert not found.padded


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("(n)->()", [()]),
        ("(n),(n)->()", [(3,), (4,)]),
        ("(n,n)->()", [(3, 4)]),
        ("(3)->()", [(4,)]),
        ("(3)->()", [(1,)]),
        ("(),()->()", [(2,), (3,)]),
        ("(n),(n)->()", [(1,), (4,)]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(text, shapes):
    with pytest.raises(ShapeError):
        plan(text, *shapes)


@pytest.mark.parametrize("zero", [(0,), (2, 0), (0, 1)])
def test_zero_sizes_broadcast_as_in_numpy(zero):
    assert plan("(),()->()", zero, (1,)).batch == np.broadcast_shapes(zero, (1,))


def test_a_zero_and_another_size_do_not_broadcast():
    with pytest.raises(ShapeError):
        plan("(),()->()", (0,), (2,))


SIZES = st.integers(0, 3)


@st.composite
def broadcastable(draw):
    """Batch shapes of rank 0 to 3 that may or may not broadcast, of one to three arguments."""
    full = draw(st.lists(SIZES, max_size=3))
    shapes = []
    for _ in range(draw(st.integers(1, 3))):
        shape = full[draw(st.integers(0, len(full))) :]
        keep = draw(st.lists(st.sampled_from(["same", "one", "odd"]), min_size=3, max_size=3))
        change = {"same": lambda n: n, "one": lambda n: 1, "odd": lambda n: n + 1}
        shapes.append(tuple(change[how](n) for n, how in zip(shape, keep, strict=False)))
    return shapes


@settings(max_examples=300, deadline=None)
@given(broadcastable(), st.integers(1, 2))
def test_batches_broadcast_exactly_as_numpy_says(batches, core):
    signature = Signature.parse(",".join(["(k)"] * len(batches)) + "->(k)")
    shapes = tuple((*b, core) for b in batches)
    try:
        expected = np.broadcast_shapes(*batches)
    except ValueError:
        with pytest.raises(ShapeError):
            signature.plan(shapes)
        return
    found = signature.plan(shapes)
    assert found.batch == expected
    assert found.outputs == ((*expected, core),)
    for shape, aligned, full, summed in zip(
        shapes, found.aligned, found.full, found.summed, strict=True
    ):
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        spread = np.broadcast_to(x.reshape(aligned), full)
        np.testing.assert_array_equal(spread, np.broadcast_to(x, full))
        assert spread.sum(axis=summed, keepdims=True).shape == aligned


@settings(max_examples=150, deadline=None)
@given(st.lists(SIZES, max_size=3), st.integers(0, 3), st.integers(0, 3), st.randoms())
def test_gradients_are_summed_back_over_what_was_broadcast(full, cut_x, cut_s, random):
    """The gradient of sum(ct (x s + b)) by a rule that leaves every sum to the binder."""
    thin = [n if random.random() < 0.5 else 1 for n in full]
    x_batch, s_batch = tuple(full[min(cut_x, len(full)) :]), tuple(thin[min(cut_s, len(full)) :])
    batch = np.broadcast_shapes(x_batch, s_batch)
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(*x_batch, 2)), rng.normal(size=s_batch)
    ct = rng.normal(size=(*batch, 2))
    found = bind(sample_ops.affine()).vjp(ct, x, s, np.float64(0))
    everywhere = [ct * s[..., None], (ct * x).sum(-1), ct.sum(-1)]
    for g, wide, target in zip(found, everywhere, [x.shape, s.shape, ()], strict=True):
        assert g.shape == target
        extra = tuple(range(wide.ndim - len(target)))
        narrow = wide.sum(axis=extra)
        ones = tuple(i for i, n in enumerate(target) if n == 1 and narrow.shape[i] != 1)
        np.testing.assert_allclose(g, narrow.sum(axis=ones, keepdims=True), atol=1e-12)


def message(op, *shapes):
    with pytest.raises(ShapeError) as caught:
        bind(op)(*[np.zeros(shape) for shape in shapes])
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "shapes", "parts"),
    [
        ("dot", [(3,), (4,)], ["dot (n),(n)->()", "dimension n is 3 in x", "4 in y", "(4,)"]),
        ("dot", [(3,), ()], ["y has shape ()", "at least 1 dimension"]),
        ("affine", [(2, 3), (5,), ()], ["batch shapes do not broadcast", "x (2,)", "s (5,)"]),
    ],
)
def test_shape_errors_name_the_op_its_signature_the_arguments_and_sizes(op, shapes, parts):
    text = message(getattr(sample_ops, op)(), *shapes)
    assert all(part in text for part in parts), text


def test_a_wrong_fixed_size_says_which_size_is_fixed():
    text = Signature.parse("(3)->()").explain([(4,)], ["x"])
    assert "found size 4 where 3 is fixed" in text
