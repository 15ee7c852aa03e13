"""Ops of a script or a notebook, sent to other processes: they arrive, or an error says why not."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import multiprocessing, sys, traceback
from concurrent.futures import ProcessPoolExecutor
import numpy as np
from twingrad.interop import Host, define, from_numpy
from twingrad.interop.numpy import bind

FACTOR = 2.0

@define("()->()", host=Host(vectorize=True))
def twice(xp, x):
    return FACTOR * x

@twice.def_vjp
def _(xp, ct, out, x):
    return FACTOR * ct

def plain(x):
    return FACTOR * x

def outer():
    def inner(x):
        return FACTOR * x
    vjp = lambda ct, x: FACTOR * ct
    return from_numpy(inner, signature="()->()", vjp=vjp, host=Host(vectorize=True))

def pool(kind):
    if kind == "dask":
        from distributed import Client
        client = Client(n_workers=1, threads_per_worker=1, dashboard_address=None)
        return client.get_executor()
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(kind))

def main(kind):
    x = np.arange(3.0)
    one = Host(vectorize=True)
    made = from_numpy(plain, signature="()->()", vjp=lambda ct, x: FACTOR * ct, host=one)
    with pool(kind) as executor:
        for op in (twice, made, outer()):
            op.host = Host(vectorize=True, executor=executor)
            try:
                print(op.name, bind(op)(x), bind(op).vjp(1 + 0 * x, x)[0], flush=True)
            except Exception as error:
                print(op.name, type(error).__name__, error, flush=True)

if __name__ == "__main__":
    {first}
    main({kind!r})
"""
RIGHT = [f"{name} [0. 2. 4.] [2. 2. 2.]" for name in ("twice", "plain", "inner")]
WITHOUT = "sys.modules['cloudpickle'] = None"


def printed(tmp_path, form, kind, first="pass"):
    code = textwrap.dedent(PROGRAM).format(kind=kind, first=first)
    if form == "script":
        (tmp_path / "script.py").write_text(code)
    command = [str(tmp_path / "script.py")] if form == "script" else ["-c", code]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("form", ["script", "no file"])
@pytest.mark.parametrize("kind", ["spawn", "fork", "dask"])
def test_an_op_of_main_is_sent_to_processes(tmp_path, form, kind):
    pytest.importorskip("cloudpickle")
    if kind == "dask":
        pytest.importorskip("distributed")
    assert printed(tmp_path, form, kind) == RIGHT


def test_without_cloudpickle_what_cannot_be_sent_raises_here(tmp_path):
    """A notebook and a pool that starts anew; a script's ops are found by their names."""
    for line in printed(tmp_path, "no file", "spawn", first=WITHOUT):
        assert "PicklingError" in line
        assert "cannot be sent to other processes" in line and "install cloudpickle" in line
    twice, plain, inner = printed(tmp_path, "script", "spawn", first=WITHOUT)
    assert twice == RIGHT[0]
    assert "PicklingError inner ()->()" in inner and "at the top of a module" in inner


USES_ANOTHER = """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
import numpy as np
from twingrad.interop import Host, define
from twingrad.interop.numpy import bind

@define("()->()")
def inner(xp, x):
    return 2 * x

with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
    @define("()->()", host=Host(vectorize=True, executor=executor))
    def outer(xp, x):
        return inner(xp, x)
    try:
        bind(outer)(np.arange(3.0))
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_a_function_of_a_notebook_that_uses_an_op_of_it_raises_here():
    pytest.importorskip("cloudpickle")
    done = subprocess.run(
        [sys.executable, "-c", USES_ANOTHER], capture_output=True, text=True, timeout=60, check=True
    )
    assert "PicklingError outer ()->(): " in done.stdout
    assert "it uses inner ()->() of __main__" in done.stdout
