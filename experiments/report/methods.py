"""What the methods compared are called in pictures and tables; no framework in here."""

# key in the results files: (name, colour, line style)
METHODS = {
    "scipy_loop": ("SciPy by hand, Python loop", "0.35", ":"),
    "scipy_batch": ("SciPy by hand, whole batch", "0.35", "-"),
    "torch_autodiff": ("textbook, torch eager", "tab:orange", ":"),
    "twingrad_torch": ("twingrad, torch eager", "tab:red", ":"),
    "twingrad_torch_vmap": ("twingrad, torch eager, vmap(grad)", "tab:pink", ":"),
    "torch_autodiff_compiled": ("textbook, torch compiled", "tab:orange", "-"),
    "twingrad_torch_compiled": ("twingrad, torch compiled", "tab:red", "-"),
    "twingrad_torch_compiled_vmap": ("twingrad, torch compiled, vmap(grad)", "tab:pink", "--"),
    "jax_autodiff": ("textbook, JAX jitted", "tab:cyan", "-"),
    "twingrad_jax": ("twingrad, JAX jitted", "tab:blue", "-"),
    "twingrad_jax_vmap": ("twingrad, JAX jitted, vmap(grad)", "tab:purple", "--"),
}

# twingrad against autodiff of the textbook formula, run the same way
PAIRS = {
    "torch eager": ("twingrad_torch", "torch_autodiff"),
    "torch compiled": ("twingrad_torch_compiled", "torch_autodiff_compiled"),
    "JAX jitted": ("twingrad_jax", "jax_autodiff"),
}


def label(method: str) -> str:
    return METHODS[method][0]
