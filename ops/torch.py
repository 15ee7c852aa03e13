"""The ops as functions of torch arrays: ``from twingrad.ops.torch import NAME``."""

from typing import Any

from twingrad import ops
from twingrad.interop import Op
from twingrad.interop.torch import bind

_NAMES = [name for name, op in vars(ops).items() if isinstance(op, Op)]
for _name in _NAMES:
    globals()[_name] = bind(getattr(ops, _name))
    globals()[_name].__module__ = __name__  # where pickle finds it


def __getattr__(name: str) -> Any:
    raise AttributeError(f"twingrad.ops.torch has no op {name!r}; it has {', '.join(_NAMES)}")
