"""Settings that every test shares, and the conformance record of a run.

float64 in JAX, and one thread for each test process.  A test that is a cell of the conformance
table, and whose row has a limit there, must raise the error of that limit.
"""

import gc
import importlib.util
import os
import re
from collections import Counter

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest  # noqa: E402

from tests.conformance import ALIKE, NO_REFERENCE, SIDES, Record, cell_of  # noqa: E402

RECORD = Record()
TOGETHER = (
    "test_sharding_torch.py",
    "test_sharding_jax.py",
    "test_sharding_modes_jax.py",
    "torch_programs.py::test_a_pickled_op",
    "jax_programs.py::test_a_pickled_op",
    "test_samples.py",
)
ENOUGH = {"torch": 2, "JAX": 1}


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true", help="keep this run's conformance record")


def pytest_configure(config):
    config.addinivalue_line("markers", "conformance(line): a cell of the conformance table")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    seen = Counter()
    for item in items:
        cell = cell_of(item)
        if cell and cell[2].name in ALIKE:
            line, side, row = cell
            seen[line, side, row.name] += 1
            if seen[line, side, row.name] > ENOUGH[side]:
                item.add_marker("slow")


def pytest_collection_finish():
    # tracing makes objects by the million, and a full collection looks at all that is imported
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests that share other processes run on one worker, which starts them once."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for name in TOGETHER if name in nodeid), nodeid)

    return Together(config, log)


def limit_of(item):
    cell = cell_of(item)
    return cell and cell[2].limits.get((cell[0], cell[1]))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    limit = limit_of(pyfuncitem)
    if limit is None:
        return (yield)
    label = re.escape(cell_of(pyfuncitem)[2].name)
    with pytest.raises(limit.error, match=label):
        yield
    return True


def pytest_runtest_setup(item):
    cell = cell_of(item)
    if cell is not None:
        line, side, row = cell
        verdict = "no" if limit_of(item) else "yes"
        item.user_properties.append(("conformance", (line, side, row.name, verdict)))


def pytest_runtest_logreport(report):
    for key, value in report.user_properties:
        if key == "conformance":
            line, side, op, verdict = value
            if report.failed or hasattr(report, "wasxfail"):
                verdict = "fails"
            elif report.skipped:
                verdict = NO_REFERENCE if NO_REFERENCE in str(report.longrepr) else "not run"
            RECORD.add(line, side, op, verdict)


def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if config.option.record:
        RECORD.save()
    elif _is_whole(config):
        sides = [side for side in SIDES if importlib.util.find_spec(side.lower())]
        found = RECORD.differences(Record.load(), sides)
        if found and not session.exitstatus:
            session.exitstatus = 1
            lines = "\n  ".join(found)
            print(f"\nthe conformance record is not current; run `make conformance`:\n  {lines}")


def _is_whole(config):
    """Whether no test was left out, except the slow ones."""
    option = config.option
    picked = option.keyword or option.markexpr not in ("", "not slow") or option.collectonly
    return not picked and config.args == ["tests"]
