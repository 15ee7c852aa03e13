"""What `Host` refuses when it is made, progress bars, and one call at a time."""

import copy
import importlib
import multiprocessing.pool
import pickle
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from tests.closeness import as_numpy
from twingrad.interop import (
    ArgumentError,
    Host,
    define,
    finite_difference,
    from_jacobian,
    from_numpy,
)
from twingrad.interop.numpy import bind

each_side = pytest.mark.parametrize("framework", ["torch", "jax", "numpy"])


class Client:
    """What a Dask client looks like."""

    def submit(self, function, *args): ...

    def get_executor(self): ...


REFUSED = {
    "a number": ({"executor": 3}, r"executor is a int.*ProcessPoolExecutor\(3\)"),
    "a pool": (
        {"executor": multiprocessing.pool.ThreadPool.__new__(multiprocessing.pool.ThreadPool)},
        r"executor is a ThreadPool.*ProcessPoolExecutor\(4\)",
    ),
    "a client": ({"executor": Client()}, r"executor is a Client.*get_executor\(\)"),
    "a class": ({"executor": ProcessPoolExecutor}, "the class ProcessPoolExecutor; make one"),
    "a name": ({"executor": "processes"}, "executor is a str"),
    "progress": ({"progress": 5}, "progress is a int; expected True or a function"),
    "both": ({"executor": ThreadPoolExecutor(1), "serial": True}, "serial=True makes one call"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_when_it_is_made(case):
    given, message = REFUSED[case]
    with pytest.raises(ArgumentError, match=f"^Host: .*{message}"):
        Host(vectorize=True, **given)


@pytest.mark.parametrize(
    "given", [{"executor": ThreadPoolExecutor(1)}, {"progress": True}, {"progress": print}]
)
def test_what_is_for_single_samples_is_not_ignored(given):
    with pytest.raises(ArgumentError, match="^Host: .* without vectorize=True: add that"):
        Host(**given)
    Host(vectorize=True, **given)
    Host(executor=None, progress=False)


@pytest.mark.parametrize("host", [4, False, None, ThreadPoolExecutor(1), "threads"])
def test_a_host_that_is_none_is_refused(host):
    message = r"same: host is .*expected True or a Host"
    with pytest.raises(ArgumentError, match=message):
        from_numpy(lambda x: x, signature="()->()", host=host, name="same")
    if host not in (False, None):  # there it is an array op

        def same(xp, x):
            return x

        with pytest.raises(ArgumentError, match=message):
            define("()->()", host=host)(same)


@pytest.mark.parametrize("bar", ["tqdm", "a line"])
@pytest.mark.parametrize("threads", [0, 2])
def test_progress_true_is_a_bar(bar, threads, monkeypatch, capsys):
    if bar == "tqdm":
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    executor = ThreadPoolExecutor(threads) if threads else None

    @define("()->()", host=Host(vectorize=True, progress=True, executor=executor))
    def slowly(xp, x):
        return x

    for _ in range(2):
        np.testing.assert_array_equal(bind(slowly)(np.arange(3.0)), np.arange(3.0))
    shown = capsys.readouterr().err
    assert "slowly: 100%" in shown if bar == "tqdm" else "slowly: 3 of 3\n" in shown


class Alone:
    """Counts the calls that run at once."""

    def __init__(self):
        self.inside = self.most = 0

    def __call__(self, result):
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.002)
        self.inside -= 1
        return result


def make_ops(alone, serial):
    """Ops, and one of their rules, that share state behind one `Host`."""
    host = Host(serial=serial)

    @define("()->()", host=host)
    def cube(xp, x):
        return alone(x**3)

    @cube.def_vjp
    def _(xp, ct, out, x):
        return alone(3 * ct * x**2)

    @cube.def_jvp
    def _(xp, tangents, out, x):
        return alone(3 * tangents[0] * x**2)

    jacobian = from_jacobian(
        lambda x: alone(x**3),
        lambda x: alone(3 * x**2),
        signature="()->()",
        host=host,
        name="cubes",
    )
    return cube, jacobian, finite_difference(lambda x: alone(x**3), signature="()->()", host=host)


@each_side
@pytest.mark.parametrize("serial", [True, False])
def test_serial_is_one_call_at_a_time_from_any_thread(framework, serial):
    pytest.importorskip(framework)
    alone = Alone()
    ops = make_ops(alone, serial)
    found = []

    def work(op):
        for _ in range(3):
            found.extend(derivatives(framework, op))

    threads = [threading.Thread(target=work, args=(op,)) for op in ops * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(found, 12, rtol=1e-6)
    assert len(found) == 36
    assert (alone.most == 1) if serial else (alone.most > 1)


def derivatives(framework, op):
    """Two modes at 2: 12 twice; torch's forward mode is for one thread of a process."""
    if framework == "numpy":
        f = bind(op)
        return [float(f.vjp(1.0, 2.0)[0]), float(f.jvp((1.0,), 2.0))]
    side = importlib.import_module(f"tests.side_{framework}")
    f, x = side.function(op), side.array(np.array(2.0))
    one = side.LIB.ones_like(x)
    found = [side.REVERSE["vjp"](f, one, (x,))[0]]
    if framework == "torch":
        found += side.REVERSE["backward"](f, one, (x,))
    else:
        found.append(side.jvp(f, (x,), (one,))[1])
    return [float(as_numpy(y)) for y in found]


def test_a_host_is_copied_and_pickled_with_a_lock_of_its_own():
    host = Host(serial=True)
    for other in (pickle.loads(pickle.dumps(host)), copy.deepcopy(host)):
        assert other == host and other.turns is not host.turns and other.turns is not None
