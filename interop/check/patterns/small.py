"""Patterns of small errors: an eps in one pass, digits of float32, and what is left of them."""

from __future__ import annotations

import numpy as np

from twingrad.interop.check.patterns.evidence import Evidence, Point

SMALL = 2e-2  # of the largest entry


def _share(e: Evidence) -> float:
    """The largest error, as a share of the largest entry."""
    return max(
        float(np.nanmax(np.abs(h - t)) / max(float(np.abs(t).max()), 1e-300)) for h, t in e.pairs()
    )


def float32(e: Evidence) -> str | None:
    """Digits beyond float32 are missing: its values are float32 numbers, or erratic by 1e-8."""
    share = _share(e)
    if not 1e-11 < share < 3e-5:
        return None
    hands = [h[h != 0] for h, _ in e.pairs()]
    exact = all(h.size and (h == h.astype(np.float32)).all() for h in hands)
    if exact or _erratic(e):
        return (
            f"the gradient of {e.name} is off by up to {share:.0e}, as of a computation in "
            "float32 inside: a dtype, a constant or an array of float32"
        )
    return None


def _erratic(e: Evidence) -> bool:
    """Errors of both signs, with no order in them, and of the size of float32's rounding."""
    relative = []
    for h, t in e.pairs():
        live = np.abs(t) > 1e-3 * np.abs(t).max()
        relative.append(((h - t)[live] / t[live]).ravel())
    found = np.concatenate(relative)
    found = found[np.abs(found) > 1e-13]
    if found.size < 4 or np.abs(found).max() > 1e-6 or np.abs(found).max() < 3e-9:
        return False
    positive = (found > 0).mean()
    spread = np.abs(found).max() / np.median(np.abs(found))
    return bool(0.15 < positive < 0.85 and spread < 30)


def shifted(e: Evidence) -> str | None:
    """hand(x) is the true Jacobian at x + eps: an eps that only one pass adds."""
    if _share(e) > 0.3:
        return None
    for k, name in enumerate(e.names):
        found = [_slope(e, p, k) for p in e.points[:2]]
        slopes = [slope for slope in found if slope is not None]
        if len(slopes) < len(found):
            continue
        pairs = e.pairs()[:2]
        eps = [
            float(((h - t) * m).sum() / max((m * m).sum(), 1e-300))
            for (h, t), m in zip(pairs, slopes, strict=True)
        ]
        near = bool(np.isfinite(eps).all()) and eps[0] != 0 and np.allclose(eps, eps[0], 0.1, 0)
        left = [
            float(np.abs(h - t - d * m).max() / np.abs(h - t).max())
            for (h, t), d, m in zip(pairs, eps, slopes, strict=True)
        ]
        if near and max(left) < 0.1 and 1e-13 < abs(eps[0]) < 0.05:
            return (
                f"the gradient of {e.name} is that at {name} {eps[0]:+.1e}: an eps is added to "
                f"{name} in one pass only"
            )
    return _grows(e)


def _slope(e: Evidence, p: Point, k: int) -> np.ndarray | None:
    """How the true Jacobian changes when all entries of input k are shifted alike."""
    x = np.asarray(p.inputs[k])
    if x.dtype.kind != "f" or not x.size:
        return None
    h = 1e-3 * max(float(np.abs(x).min()), 1e-3 * float(np.abs(x).max()), 1e-6)
    high, low = (
        e.truth((*p.inputs[:k], x + sign * h, *p.inputs[k + 1 :]))[e.argument] for sign in (1, -1)
    )
    slope = (high - low) / (2 * h)
    return slope if np.isfinite(slope).all() and slope.any() else None


def _grows(e: Evidence) -> str | None:
    """A smooth small error of one relative size, which grows where the inputs are small."""
    if not 1e-12 < _share(e) < SMALL or len(e.anywhere) < 2:
        return None
    points, i = e.anywhere, e.argument
    sizes = [max(float(np.abs(x).max()) for x in p.inputs if np.size(x)) for p in points]
    errors = [
        float(np.abs(p.hand[i] - p.true[i]).max() / max(float(np.abs(p.true[i]).max()), 1e-300))
        for p in points
    ]
    small, large = int(np.argmin(sizes)), int(np.argmax(sizes))
    if sizes[large] > 5 * sizes[small] and errors[small] > 5 * errors[large]:
        power = np.log(errors[small] / errors[large]) / np.log(sizes[large] / sizes[small])
        return (
            f"the gradient of {e.name} is off by {errors[large]:.0e}, and by {errors[small]:.0e} "
            f"where the inputs are {sizes[large] / sizes[small]:.0f} times smaller (like size^"
            f"-{power:.1f}): an eps that is in one pass only"
        )
    return None


def small(e: Evidence) -> str | None:
    """What is left of small errors."""
    share = _share(e)
    if share > SMALL:
        return None
    return (
        f"the gradient of {e.name} is off by {share:.1e} of its largest entry: a constant with "
        "too few digits, a small term left out, or a factor near 1 on one term"
    )
