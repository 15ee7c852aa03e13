"""Host functions that fail, are interrupted or misbehave: an error, and the process goes on."""

import importlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.closeness import as_numpy
from twingrad.interop import define

each_side = pytest.mark.parametrize("framework", ["torch", "jax"])


@each_side
@pytest.mark.parametrize("where", ["value", "adjoint"])
def test_an_exception_of_either_names_the_op_and_the_next_call_is_right(framework, where):
    pytest.importorskip(framework)
    side = importlib.import_module(f"tests.side_{framework}")
    broken = {"value": False, "adjoint": False}

    @define("()->()", host=True)
    def fragile(xp, x):
        if broken["value"]:
            raise ZeroDivisionError("the user's own words")
        return np.sin(x)

    @fragile.def_vjp
    def _(xp, ct, out, x):
        if broken["adjoint"]:
            raise ZeroDivisionError("the user's own words")
        return ct * np.cos(x)

    x = side.array(np.array([0.3, 1.0]))
    g = side.vmap(side.grad(side.function(fragile)))
    broken[where] = True
    with pytest.raises(Exception) as caught:
        as_numpy(g(x) if where == "adjoint" else side.function(fragile)(x))
    text = str(caught.value) + " ".join(getattr(caught.value, "__notes__", ()))
    assert "the user's own words" in text and "fragile" in text
    broken[where] = False
    np.testing.assert_allclose(as_numpy(g(x)), np.cos([0.3, 1.0]))


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from twingrad.interop import define
from twingrad.interop.{framework} import bind

@define("()->()", host=True)
def slow(xp, x):
    if x[0] > 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        end = time.time() + 20
        while time.time() < end:
            time.sleep(0.01)
    return 2 * x

slow.def_vjp(lambda xp, ct, out, x: 2 * ct)
f = bind(slow)
{array}
signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup make test &` ignores it
start = time.time()
try:
    print("no interrupt", float(f(array(1.0))))
except BaseException as error:
    print(type(error).__name__, "KeyboardInterrupt" in repr(error) + str(error))
print(time.time() - start < 10, float(f(array(-1.0))))
"""
ARRAYS = {
    "torch": "import torch; array = lambda x: torch.tensor(x, dtype=torch.float64)",
    "jax": "import jax.numpy as jnp; array = jnp.array",
}


@each_side
def test_an_interrupt_ends_the_call_and_the_process_goes_on(framework):
    """Ctrl-C while the host function runs."""
    pytest.importorskip(framework)
    code = textwrap.dedent(INTERRUPTED.format(framework=framework, array=ARRAYS[framework]))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[0].endswith("True"), done.stdout
    assert done.stdout.splitlines()[1] == "True -2.0"
