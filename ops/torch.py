"""The ops as functions of torch arrays: ``from twingrad.ops.torch import NAME``."""

from typing import Any

from twingrad import ops
from twingrad.interop import Op
from twingrad.interop.torch import bind

_NAMES = [name for name, op in vars(ops).items() if isinstance(op, Op)]
globals().update({name: bind(getattr(ops, name)) for name in _NAMES})


def __getattr__(name: str) -> Any:
    raise AttributeError(f"twingrad.ops.torch has no op {name!r}; it has {', '.join(_NAMES)}")
