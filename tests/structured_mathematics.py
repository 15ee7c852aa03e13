"""The mathematics of the ops in `structured_ops`: values, gradients, tangents, Jacobians."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Spring(NamedTuple):
    k: Any
    rest: Any


def part(params, name):
    return params[name] if isinstance(params, dict) else getattr(params, name)


def parts(params):
    return [part(params, name) for name in ("rate", "shift", "power")]


def col(x):
    return x[..., None]


def total(xp, x):
    return xp.sum(x, axis=-1)


class Simulate:
    """y = rate t^power + sum(shift^2) + sum(offset)."""

    @staticmethod
    def value(xp, params, t, offset=None):
        rate, shift, power = parts(params)
        y = col(rate) * t**power + col(total(xp, shift**2))
        return y if offset is None else y + col(total(xp, offset))

    @staticmethod
    def bars(xp, ct, out, params, t, offset):
        rate, shift, power = parts(params)
        whole = col(total(xp, ct))
        found = {"rate": total(xp, ct * t**power), "shift": 2 * shift * whole}
        t_bar = ct * col(rate) * power * t ** (power - 1)
        return found, t_bar, None if offset is None else whole * xp.ones_like(offset)

    @staticmethod
    def dots(xp, tangents, out, params, t, offset):
        (rate, shift, power), (params_dot, t_dot, offset_dot) = parts(params), tangents
        rate_dot, shift_dot = part(params_dot, "rate"), part(params_dot, "shift")
        y_dot = col(rate_dot) * t**power + col(rate) * power * t ** (power - 1) * t_dot
        y_dot = y_dot + 2 * col(total(xp, shift * shift_dot))
        return y_dot if offset is None else y_dot + col(total(xp, offset_dot))

    @staticmethod
    def slopes(params, t, offset):
        rate, shift, power = parts(params)
        ones = np.ones((len(t), 1))
        params_bar = {"rate": t**power, "shift": ones * 2 * shift}
        t_bar = np.diag(rate * power * t ** (power - 1))
        return params_bar, t_bar, None if offset is None else ones * np.ones_like(offset)


class Network:
    """A list of layers, y = tanh(w y + b) for each, and the sum of the last."""

    @staticmethod
    def value(xp, layers, x):
        for layer in layers:
            x = xp.tanh(total(xp, layer["w"] * x[..., None, :]) + layer["b"])
        return total(xp, x)

    @staticmethod
    def bars(xp, ct, out, layers, x):
        values, found = [x], []
        for layer in layers:
            given = values[-1][..., None, :]
            values.append(xp.tanh(total(xp, layer["w"] * given) + layer["b"]))
        x_bar = col(ct) * xp.ones_like(values[-1])
        for layer, given, y in zip(layers[::-1], values[-2::-1], values[:0:-1], strict=True):
            b_bar = x_bar * (1 - y**2)
            found.insert(0, {"w": b_bar[..., None] * given[..., None, :], "b": b_bar})
            x_bar = xp.sum(b_bar[..., None] * layer["w"], axis=-2)
        return found, x_bar


class Product:
    """The product of any number of arrays, in their order."""

    @staticmethod
    def value(xp, *xs):
        y = xs[0]
        for x in xs[1:]:
            y = y * x
        return y

    @staticmethod
    def bars(xp, ct, out, *xs):
        found = []
        for place in range(len(xs)):
            bar = ct
            for i, x in enumerate(xs):
                bar = bar if i == place else bar * x
            found.append(bar)
        return tuple(found)


class Body:
    """Springs on a mass: m |x|^2 + sum_i k_i |x - rest_i|^2 + sum_w w x, over walls if any."""

    @staticmethod
    def value(xp, system, x):
        y = system["mass"] * total(xp, x**2)
        for spring in system["springs"]:
            y = y + spring.k * total(xp, (x - spring.rest) ** 2)
        for wall in (system["walls"] or {}).values():
            y = y + total(xp, wall * x)
        return y

    @staticmethod
    def bars(xp, ct, out, system, x):
        x_bar, springs, walls = 2 * col(system["mass"]) * x, [], None
        for spring in system["springs"]:
            away = x - spring.rest
            x_bar = x_bar + 2 * col(spring.k) * away
            springs.append(Spring(ct * total(xp, away**2), -2 * col(ct * spring.k) * away))
        if system["walls"] is not None:
            for wall in system["walls"].values():
                x_bar = x_bar + wall
            walls = {name: col(ct) * x for name in system["walls"]}
        mass_bar = ct * total(xp, x**2)
        return {"mass": mass_bar, "springs": springs, "walls": walls}, col(ct) * x_bar


class Energy:
    """The sum of squares of whatever there is, each with half the weight of the one before."""

    @staticmethod
    def value(xp, parts):
        y = 0
        for i, x in enumerate(parts.values()):
            y = y + total(xp, x**2) * 0.5**i
        return y

    @staticmethod
    def bars(xp, ct, out, parts):
        return {n: 2 * col(ct) * x * 0.5**i for i, (n, x) in enumerate(parts.items())}
