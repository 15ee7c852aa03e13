"""The torch side: `bind(op)`, a function of tensors, right under every transform.

`binder` holds it; `function` the autograd Functions, `operators` the host calls, `names` the names
in graphs.  Users touch `bind`; everything else may change.
"""

from twingrad.interop.torch.binder import bind

__all__ = ["bind"]
