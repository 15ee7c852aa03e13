"""Array ops as compiled kernels in eager torch: what ``bind(op, fused=True)`` is made of.

`bound` is the function that users call, `kernel` the op whose forward function and rules run as
kernels, `runner` one such function, `layout` the shapes that its kernels see, `compiled` a kernel.

- **What is fused**: the forward function, the vjp and the jvp, each as one kernel.  Derivatives of
  second and higher order are made of the rules as without it, from fused first ones.
- **When**: the largest array of the call has 16,384 numbers or more (``fused=1000``: 1000), the
  tensors are ordinary ones, on a CPU or a CUDA GPU, and nobody traces.  Else, as in torch.compile,
  torch.export, on fake or meta tensors and DTensors, it is the plain op.
- **The first call** that needs a kernel waits for torch.compile: 2 s for the smallest op, 5 to 7 s
  for the function of a mixture op and 2 to 3 s for its vjp, the first one of a process 5 s more.
  Kernels are for all sizes, but for each: dtype; arguments with a batch, or without; arguments
  with a gradient; value of the static parameters.  An op gets 64 at most.
- **Where it cannot be**: without a C++ compiler (on a GPU: Triton), for code that torch.compile
  does not take, and beyond 64 kernels, the op runs as the plain one, with one `RuntimeWarning`.
- **Results** are the same to rounding.  As for torch.compile, the code must have no side effects.
"""
