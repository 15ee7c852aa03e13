"""How accurate elementary and special functions are in each framework and mode.

Eager, one number at a time (scalar code) and vectors: torch eager and compiled by Inductor,
JAX eager and jitted; and the ops' own erfcx, expm1 and log1p in the same places.  Errors in
ulps against mpmath.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import array_api_compat.torch as xp_torch
import jax
import jax.numpy as jnp
import numpy as np
import torch
from tqdm import tqdm

from experiments.measure.harness import Recorder
from tests.special_functions import POWER, RANGES, inputs, worst
from twingrad.ops import _special

Array = Any

TORCH: dict[str, Callable[[Array], Array]] = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "erfc": torch.special.erfc,
    "erfcx": torch.special.erfcx,
    "tanh": torch.tanh,
    "lgamma": torch.lgamma,
    "power": lambda x: x**POWER,
    "sqrt": torch.sqrt,
    "half": lambda x: 0.5 * x,
}
JAX: dict[str, Callable[[Array], Array]] = {
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "erfc": jax.scipy.special.erfc,
    "erfcx": getattr(jax.scipy.special, "erfcx", jnp.exp),
    "tanh": jnp.tanh,
    "lgamma": jax.scipy.special.gammaln,
    "power": lambda x: x**POWER,
    "sqrt": jnp.sqrt,
    "half": lambda x: 0.5 * x,
}
OWN = {"erfcx": _special.erfcx, "expm1": _special.expm1, "log1p": _special.log1p}
MODES = ("torch", "Inductor, 1", "Inductor, 8", "Inductor, 1000", "JAX", "jit, 1", "jit, 1000")


def _pieces(f: Callable[[Array], Array], x: np.ndarray, size: int) -> np.ndarray:
    """f in calls of `size` numbers each."""
    padded = np.resize(x, -(-len(x) // size) * size)
    found = [np.asarray(f(part)) for part in padded.reshape(-1, size)]
    return np.concatenate(found)[: len(x)]


def _on_torch(f: Callable[[Array], Array]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: f(torch.from_numpy(x)).numpy()


def _on_jax(f: Callable[[Array], Array]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.asarray(f(jnp.asarray(x)))


def measure(in_torch: Any, in_jax: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    """The results of one function in every mode."""
    found = {"torch": _on_torch(in_torch)(x), "JAX": _on_jax(in_jax)(x)}
    for size in (1, 8, 1000):
        torch._dynamo.reset()
        compiled = torch.compile(lambda v: in_torch(v), dynamic=False)
        found[f"Inductor, {size}"] = _pieces(_on_torch(compiled), x, size)
        if size != 8:
            found[f"jit, {size}"] = _pieces(_on_jax(jax.jit(in_jax)), x, size)
    return found


def _record(recorder: Recorder, whose: str, name: str, in_torch: Any, in_jax: Any) -> None:
    for dtype in (np.float64, np.float32):
        parts = inputs(name, dtype)
        whole = np.concatenate(list(parts.values()))
        edges = np.cumsum([len(x) for x in parts.values()])[:-1]
        found = measure(in_torch, in_jax, whole)
        split = {mode: np.split(y, edges) for mode, y in found.items()}
        for i, (region, x) in enumerate(parts.items()):
            errors = {mode: worst(name, x, split[mode][i]) for mode in MODES}
            recorder.add(
                "error",
                whose=whose,
                function=name,
                range=region,
                dtype=np.dtype(dtype).name,
                ulps={mode: e if np.isfinite(e) else "inf" for mode, (e, _) in errors.items()},
                at={mode: at for mode, (_, at) in errors.items()},
            )


def main() -> None:
    recorder = Recorder("special_functions")
    for name in tqdm(RANGES, desc="special functions"):
        _record(recorder, "library", name, TORCH[name], JAX[name])
        if name in OWN:
            own = [functools.partial(OWN[name], xp) for xp in (xp_torch, jnp)]
            _record(recorder, "twingrad", name, *own)


if __name__ == "__main__":
    main()
