"""An op must not change the arrays that it is given, and writes to its own memory are not lost."""

import numpy as np
import pytest

from twingrad.interop import RuleError, define
from twingrad.interop.numpy import bind as bind_numpy

torch = pytest.importorskip("torch")

from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vmap  # noqa: E402

from twingrad.interop.torch import bind  # noqa: E402

X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)


def scale(guilty="nobody"):
    """x s, with a function or rule that changes one of the arrays it is given."""

    def touch(who, x):
        if who == guilty:
            x += 1

    @define("(n),()->(n)")
    def scale(xp, x, s):
        touch("function: x", x)
        return x * s[..., None]

    @scale.def_vjp
    def _(xp, ct, out, x, s):
        for name, array in (("ct", ct), ("out", out), ("x", x), ("s", s)):
            touch(f"vjp: {name}", array)
        return ct * s[..., None], xp.sum(ct * x, axis=-1)

    @scale.def_jvp
    def _(xp, t, out, x, s):
        for name, array in (("tangent", t[0]), ("out", out), ("x", x), ("s", s)):
            touch(f"jvp: {name}", array)
        return t[0] * s[..., None] + x * t[1][..., None]

    return scale


def _backward(f, x):
    x = x.requires_grad_()
    f(x).sum().backward()


def _inference(f, x):
    with torch.inference_mode():
        f(x.clone())


def _total(f):
    return lambda x: f(x).sum()


VALUE = {"call": lambda f, x: f(x), "vmap": lambda f, x: vmap(f)(x), "inference": _inference}
REVERSE = {
    "backward": _backward,
    "grad": lambda f, x: grad(_total(f))(x),
    "vmap(grad)": lambda f, x: vmap(grad(_total(f)))(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "hessian": lambda f, x: hessian(_total(f))(x),
}
FORWARD = {
    "jvp": lambda f, x: jvp(f, (x,), (x.clone(),)),
    "vmap(jvp)": lambda f, x: vmap(lambda x: jvp(f, (x,), (x,)))(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "linearize": lambda f, x: linearize(f, x),
}
ALL = VALUE | REVERSE | FORWARD
MODES = {"function": ALL, "vjp": REVERSE, "jvp": FORWARD}
GUILTY = ["function: x", *[f"vjp: {w}" for w in ("ct", "out", "x", "s")]]
GUILTY += [f"jvp: {w}" for w in ("tangent", "out", "x", "s")]


@pytest.mark.parametrize("guilty", GUILTY)
def test_changing_an_array_that_was_given_raises_in_torch(guilty):
    f, s = bind(scale(guilty)), torch.tensor(2.0, dtype=torch.float64)
    kind = guilty.partition(":")[0]
    for mode in MODES[kind].values():
        with pytest.raises(RuleError, match=rf"scale \(n\),\(\)->\(n\): its {kind} .*in place"):
            mode(lambda x: f(x, s), X.clone())


@pytest.mark.parametrize("mode", ALL)
def test_an_op_that_changes_nothing_runs(mode):
    f, s = bind(scale()), torch.tensor(2.0, dtype=torch.float64)
    ALL[mode](lambda x: f(x, s), X.clone())


@pytest.mark.compile
@pytest.mark.parametrize("guilty", ["function: x", "vjp: x"])
def test_changing_an_array_that_was_given_raises_when_compiled(guilty):
    f = bind(scale(guilty))
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"scale \(n\),\(\)->\(n\): its .* changed an array"):
        torch.compile(lambda x: f(x, 2.0).sum(), backend="aot_eager")(
            X.clone().requires_grad_()
        ).backward()


@pytest.mark.parametrize("guilty", GUILTY)
def test_changing_an_array_that_was_given_raises_in_numpy(guilty):
    f, x, ones = bind_numpy(scale(guilty)), X.numpy().copy(), np.ones((2, 3))
    call = {
        "function": lambda: f(x, 2.0),
        "vjp": lambda: f.vjp(ones, x, 2.0),
        "jvp": lambda: f.jvp((ones, 1.0), x, 2.0),
    }
    kind = guilty.partition(":")[0]
    with pytest.raises(RuleError, match=rf"scale \(n\),\(\)->\(n\): its {kind} changed an array"):
        call[kind]()
    assert (x == X.numpy()).all() and (ones == 1).all()


def test_results_of_the_numpy_binder_can_be_written_to():
    @define("(n)->(n)")
    def same(xp, x):
        return x

    x = np.ones(3)
    y = bind_numpy(same)(x)
    y += 1
    assert x.tolist() == [1, 1, 1]


def _constant(xp, x, write):
    """2 x, in a buffer that does not depend on a tangent."""
    y = xp.zeros(x.shape, dtype=x.dtype)
    if write == "view":
        for i in range(x.shape[-1]):
            y[..., i] = 2 * x[..., i]
    else:
        y += 2 * x
    return 1 * y


@pytest.mark.parametrize("write", ["view", "direct"])
@pytest.mark.parametrize("rules", ["vjp", "jvp"])
def test_linearize_of_an_op_whose_forward_writes_to_its_own_memory(write, rules):
    @define("(n)->(n)")
    def twice(xp, x):
        return _constant(xp, x, write)

    if rules == "vjp":
        twice.def_vjp(lambda xp, ct, out, x: (3 * out) * ct / (3 * x))
    else:
        twice.def_jvp(lambda xp, t, out, x: (3 * out) * t[0] / (3 * x))
    moved = linearize(bind(twice), X)[1]
    for _ in range(2):
        torch.testing.assert_close(moved(torch.ones_like(X)), 2 * torch.ones_like(X))


@pytest.mark.parametrize("write", ["view", "direct"])
def test_linearize_of_a_rule_that_writes_to_a_constant_is_right_or_raises(write):
    @define("(n)->(n)")
    def twice(xp, x):
        return 2 * x

    twice.def_vjp(lambda xp, ct, out, x: _constant(xp, ct, write))
    moved = linearize(bind(twice), X)[1]
    for _ in range(2):
        torch.testing.assert_close(moved(torch.ones_like(X)), 2 * torch.ones_like(X))
    twice.def_jvp(lambda xp, t, out, x: _constant(xp, t[0], write))
    f = bind(twice)
    torch.testing.assert_close(jvp(f, (X,), (X,))[1], 2 * X)
    with pytest.raises(RuleError, match=r"twice .*its jvp writes in place .*linearize"):
        linearize(f, X)


def test_linearize_of_a_rule_that_calls_an_op_which_writes_to_its_own_memory():
    @define("(n)->(n)")
    def inner(xp, x):
        return _constant(xp, x, "view")

    @define("(n)->(n)")
    def outer(xp, x):
        return x * x

    outer.def_jvp(lambda xp, t, out, x: inner(xp, x) * t[0])
    moved = linearize(bind(outer), X)[1]
    for _ in range(2):
        torch.testing.assert_close(moved(torch.ones_like(X)), 2 * X)
