"""Ops with structured arguments, and the same mathematics with their arrays one by one."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tests import structured_mathematics as maths
from tests.structured_mathematics import Spring
from twingrad.interop import Op, define, from_jacobian, from_numpy


@dataclass
class Plain:
    rate: Any
    shift: Any
    power: int = 2


@dataclass(frozen=True)
class Registered:
    rate: Any
    shift: Any
    power: int = 2


class Tupled(NamedTuple):
    rate: Any
    shift: Any
    power: int = 2


class Slotted:
    __slots__ = ("power", "rate", "shift")

    def __init__(self, rate, shift, power=2):
        self.rate, self.shift, self.power = rate, shift, power


def as_dict(rate, shift, power=2):
    return {"rate": rate, "shift": shift, "power": power}


def as_ordered(rate, shift, power=2):
    return OrderedDict(as_dict(rate, shift, power))


PARAMS = {
    "dict": as_dict,
    "ordered dict": as_ordered,
    "dataclass": Plain,
    "registered": Registered,
    "NamedTuple": Tupled,
    "slots": Slotted,
}


@dataclass(frozen=True)
class Case:
    """A structured op; `pack` puts arrays of these shapes into its arguments.

    `plain` is the signature of the same op of the arrays; `order`: how many derivatives it has.
    """

    maths: Any
    signature: str
    plain: str
    pack: Callable[..., tuple[Any, ...]]
    shapes: tuple[tuple[int, ...], ...]
    way: str = "array"

    @property
    def order(self) -> int:
        return 9 if self.way == "array" else 1

    def inputs(self, batch: tuple[int, ...] = ()) -> list[np.ndarray]:
        rng = np.random.default_rng(5)
        return [rng.normal(size=(*batch, *shape)) for shape in self.shapes]

    def of_arrays(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of structured arguments as one of the arrays."""
        return lambda *arrays: function(*self.pack(*arrays))

    def structured(self) -> Op:
        return _made(self.maths, self.signature, self.way)

    def flat(self) -> Op:
        pack, maths, count = self.pack, self.maths, len(self.shapes)

        class OfArrays:
            value = staticmethod(counted(lambda xp, *x: maths.value(xp, *pack(*x)), 1 + count))

            @staticmethod
            def bars(xp, ct, out, *x):
                return tuple(arrays_in(maths.bars(xp, ct, out, *pack(*x))))

            @staticmethod
            def dots(xp, tangents, out, *x):
                return maths.dots(xp, pack(*tangents), out, *pack(*x))

            @staticmethod
            def slopes(*x):
                return tuple(arrays_in(maths.slopes(*pack(*x))))

        return _made(OfArrays, self.plain, self.way, hasattr(maths, "dots"))


def _made(maths: Any, signature: str, way: str, with_jvp: bool | None = None) -> Op:
    jvp = hasattr(maths, "dots") if with_jvp is None else with_jvp
    if way == "from_numpy":
        value, bars, dots = (of_numpy(f) for f in (maths.value, maths.bars, maths.dots))
        return from_numpy(value, signature=signature, vjp=bars, jvp=dots)
    if way == "from_jacobian":
        return from_jacobian(of_numpy(maths.value), maths.slopes, signature=signature)
    op = define(signature, host=way == "host")(maths.value)
    op.def_vjp(maths.bars)
    if jvp:
        op.def_jvp(maths.dots)
    elif way == "host":
        op.def_jvp_by_rows()
    return op


def of_numpy(f):
    """A function without `xp`, or a rule without that and `out`."""
    parameters = list(inspect.signature(f).parameters.values())
    rule = parameters[2].name == "out" if len(parameters) > 2 else False

    def of_numpy(*x):
        return f(np, x[0], None, *x[1:]) if rule else f(np, *x)

    of_numpy.__signature__ = inspect.Signature(
        [parameters[1], *parameters[3:]] if rule else parameters[1:]
    )
    return of_numpy


def counted(f, count):
    """A function with that many parameters by position."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    f.__signature__ = inspect.Signature([inspect.Parameter(f"a{i}", kind) for i in range(count)])
    return f


def arrays_in(value: Any) -> Iterator[Any]:
    """The arrays of a structure, in order; the constants of this file are numbers."""
    if isinstance(value, dict):
        for each in value.values():
            yield from arrays_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from arrays_in(each)
    elif value is not None and not isinstance(value, int):
        yield value


def _simulator(cls: Any, power: int = 2, offset: bool = True) -> Case:
    def pack(rate, shift, t, *rest):
        return cls(rate, shift, power), t, *(rest if offset else (None,))

    return Case(
        maths.Simulate,
        "{rate: (), shift: (n)}, (t), (m)? -> (t)",
        "(), (n), (t)" + ", (m)" * offset + " -> (t)",
        pack,
        ((), (3,), (4,)) + ((2,),) * offset,
    )


def _layers(*arrays):
    pairs = zip(arrays[:-1:2], arrays[1:-1:2], strict=True)
    return [{"w": w, "b": b} for w, b in pairs], arrays[-1]


def _system(mass, k0, rest0, k1, rest1, left, right, x):
    springs = [Spring(k0, rest0), Spring(k1, rest1)]
    return {"mass": mass, "springs": springs, "walls": {"left": left, "right": right}}, x


CASES = {
    **{f"simulator of a {name}": _simulator(cls) for name, cls in PARAMS.items()},
    "simulator, other power": _simulator(Plain, power=3),
    "simulator without offset": _simulator(Plain, offset=False),
    "network": Case(
        maths.Network,
        "[{w: (_,_), b: (_)}, ...], x: (n) -> ()",
        "(a,n),(a),(b,a),(b),(n)->()",
        _layers,
        ((3, 2), (3,), (2, 3), (2,), (2,)),
    ),
    "product": Case(maths.Product, "(n)... -> (n)", "(n),(n),(n)->(n)", lambda *x: x, ((3,),) * 3),
    "body": Case(
        maths.Body,
        "{mass: (), springs: [{k: (), rest: (n)}, ...], walls: {...: (n)}?}, x: (n) -> ()",
        "(),(),(n),(),(n),(n),(n),(n)->()",
        _system,
        ((), (), (2,), (), (2,), (2,), (2,), (2,)),
    ),
    "energy": Case(
        maths.Energy,
        "{...: (n)} -> ()",
        "(n),(n)->()",
        lambda a, b: ({"angle": a, "bond": b},),
        ((3,), (3,)),
    ),
}
_HOST = ("simulator of a dataclass", "simulator without offset", "network", "product", "body")
CASES |= {f"{name} on the host": replace(CASES[name], way="host") for name in _HOST}
CASES |= {
    f"simulator by {way}": replace(CASES["simulator of a dataclass"], way=way)
    for way in ("from_numpy", "from_jacobian")
}
