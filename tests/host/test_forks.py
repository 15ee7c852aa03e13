"""Forked processes, such as the workers of torch's DataLoader: caches, pools and locks there."""

import gc
import os
import subprocess
import sys
import textwrap

import pytest

from twingrad.interop import Cache
from twingrad.interop.op.samples import forks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

START = """
import os, signal, sys, threading, time, warnings
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from twingrad.interop import ArgumentError, Cache, Host, define
from twingrad.interop.numpy import bind

def in_child(work):
    "Run it in a forked process; a child that hangs dies of its alarm."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        signal.alarm(10)
        try:
            print(work(), flush=True)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def elsewhere(work, started):
    "Run it in a thread, and go on when it is under way."
    threading.Thread(target=work, daemon=True).start()
    started.wait()
"""


def printed(code, timeout=60):
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout


def test_a_cache_that_was_computing_or_locked_goes_on_in_a_fork():
    found = printed("""
        parent, started = os.getpid(), threading.Event()

        def slow(x):
            if os.getpid() == parent:
                started.set()
                time.sleep(30)
            return 2 * x

        class Sluggish:  # an argument that is compared while the lock is held
            def __hash__(self):
                return 1
            def __eq__(self, other):
                if os.getpid() == parent and started.is_set():
                    comparing.set()
                    time.sleep(30)
                return True

        cache = Cache(9)
        kept = cache.get(lambda x: [x], 5)
        elsewhere(lambda: cache.get(slow, 1), started)
        assert in_child(lambda: (cache.get(slow, 1), cache.get(slow, 2), len(cache))) == 0

        comparing, cache, started = threading.Event(), Cache(9), threading.Event()
        first = Sluggish()
        cache.get(len, ()), cache.get(id, first)
        started.set()
        elsewhere(lambda: cache.get(id, Sluggish()), comparing)
        assert in_child(lambda: (cache.get(slow, 1), cache.get(id, first) == id(first))) == 0
    """)
    assert found.splitlines() == ["(2, 4, 3)", "(2, True)"]


def test_a_cache_is_not_kept_alive_for_the_forks_to_come():
    gc.collect()
    before = len(forks._KNOWN)
    for _ in range(1000):
        Cache(1)
    gc.collect()
    assert len(forks._KNOWN) <= before


POOL = """
    pool = ThreadPoolExecutor(2)

    @define("()->()", host=Host(vectorize=True, executor=pool))
    def twice(xp, x):
        return 2 * x

    f = bind(twice)
"""


@pytest.mark.parametrize("use", ["f(np.arange(3.0))", "pool.submit(int).result()"])
def test_threads_started_before_a_fork_are_missed_with_words(use):
    found = printed(f"""{POOL}
    {use}
    assert in_child(lambda: f(np.arange(3.0))) == 0
    twice.host = Host(vectorize=True, executor=ThreadPoolExecutor(2))
    assert in_child(lambda: f(np.arange(3.0))) == 0
    """)
    first, second = found.splitlines()
    assert first.startswith("ArgumentError twice ()->(): ") and "forked" in first
    assert second == "[0. 2. 4.]"


def test_threads_that_start_after_the_fork_work():
    found = printed(f"{POOL}\n    assert in_child(lambda: f(np.arange(3.0))) == 0")
    assert found.splitlines() == ["[0. 2. 4.]"]


LOADER = """
    import torch
    from twingrad.interop.torch import bind as to_torch
    parent, started, cache = os.getpid(), threading.Event(), Cache(9)

    def slow(x):
        if os.getpid() == parent:
            started.set()
            time.sleep(30)
        return 2 * x

    @define("()->()", host=Host(serial=True))
    def cached(xp, x):
        return cache.get(slow, np.asarray(x))

    f = to_torch(cached)
    elsewhere(lambda: bind(cached)(np.float64(1)), started)  # holds the op's lock, too

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 2
        def __getitem__(self, i):
            return f(torch.tensor(float(i), dtype=torch.float64))

    loaded = torch.utils.data.DataLoader(
        Data(), num_workers=1, timeout=20, multiprocessing_context="fork"
    )
    print(torch.cat(list(loaded)).tolist(), flush=True)
    os._exit(0)
"""


def test_a_data_loader_s_worker_uses_what_its_parent_was_using():
    pytest.importorskip("torch")
    assert printed(LOADER).splitlines() == ["[0.0, 2.0]"]
