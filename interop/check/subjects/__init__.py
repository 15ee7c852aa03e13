"""What the check looks at: an op or a function in one framework, and the inputs it is given.

`torch_side` and `jax_side` are the only files of the check that import a framework; `subject`
imports them by name.
"""
