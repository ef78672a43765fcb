"""Runs in a library's virtualenv, by its Python: fits one method to one coded table.

    python -I runner.py <parent's pid>     < request     > reply

Both are npz without pickle. The request's arrays are the columns `x0`, `x1`, ...; its header
gives their cells, the method, its options, and what it may spend. The reply is the fitted
distribution: the columns and logarithms of each factor, how cells of each column were merged, and
the noisy number of rows. Whatever the library prints goes to standard error.

Nothing of Halftone is imported: the virtualenv holds only the library and what it requires.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import os
import signal
import sys
from typing import Any

import numpy as np

_PR_SET_PDEATHSIG = 1
# By judgement: conversions between epsilon and rho differ only in their last digits.
_LITTLE_LESS = 1 - 1e-7
_MOST_STEPS = 100


def main(parent: int) -> None:
    # Whatever the library prints would else be part of the reply.
    reply = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as request:
        order = json.loads(request["header"].tobytes())
        columns = {f"x{i}": request[f"x{i}"].astype(int) for i in range(len(order["cells"]))}
    header, arrays = _METHODS[order["library"]](order, columns)
    header_bytes = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with reply:
        np.savez(reply, header=header_bytes, **arrays)


def _dpmm(order: dict[str, Any], columns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    # OpenDP loads it where it is there, and it would look at /proc, which is closed here.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    pandas = importlib.import_module("pandas")
    module, name = {"aim": ("aim", "AIMGM"), "mst": ("mst", "MSTGM")}[order["method"]]
    method = getattr(importlib.import_module(f"dpmm.models.{module}"), name)
    # One job: a pool of forks would draw its numpy choices from copies of one generator.
    model = _within(
        order,
        lambda epsilon, delta: method(epsilon=epsilon, delta=delta, n_jobs=1, **order["options"]),
    )
    model.set_domain(dict(zip(columns, order["cells"], strict=True)))
    model.fit(pandas.DataFrame(columns))
    mechanism = model.generator
    fitted = mechanism.model
    merges = {}
    for i, column in enumerate(columns):
        supports = {} if mechanism.compressor is None else mechanism.compressor.supports
        if column in supports and not supports[column].all():
            kept = np.asarray(supports[column], dtype=bool)
            merge = np.full(kept.size, kept.sum(), dtype=np.int64)
            merge[kept] = np.arange(kept.sum())
            merges[f"merge{i}"] = merge
    factors = [fitted.potentials[clique] for clique in fitted.cliques]
    return _reply(factors, float(fitted.total), merges)


def _smartnoise(
    order: dict[str, Any], columns: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    pandas = importlib.import_module("pandas")
    transform = importlib.import_module("snsynth.transform")
    aim = _coded(importlib.import_module("snsynth.aim").AIMSynthesizer)
    conversion = importlib.import_module("snsynth.utils").cdp_rho

    def made(epsilon: float, delta: float) -> Any:
        synthesizer = aim(epsilon=epsilon, delta=delta, **order["options"])
        synthesizer.rho = conversion(epsilon, delta)  # as `fit` does
        return synthesizer

    synthesizer = _within(order, made)
    # A transformer that has seen every declared code, and no row.
    codes = transform.TableTransformer(
        [transform.LabelTransformer(nullable=False) for _ in columns]
    )
    every = range(max(order["cells"]))
    codes.fit(
        pandas.DataFrame(
            {
                name: [min(code, cells - 1) for code in every]
                for name, cells in zip(columns, order["cells"], strict=True)
            }
        )
    )
    synthesizer.fit(pandas.DataFrame(columns), transformer=codes)
    fitted = synthesizer.synthesizer
    potentials = fitted.potentials
    factors = [potentials[clique] for clique in potentials.cliques]
    return _reply(factors, float(fitted.total), {})


def _coded(method: Any) -> Any:
    """The method over rows that are coded: it would code them again, which fails for no rows."""

    class Coded(method):  # type: ignore[misc]
        def _get_train_data(self, data: Any, *_: Any, transformer: Any, **__: Any) -> Any:
            self._transformer = transformer
            return data.to_numpy(dtype=int)

    return Coded


_METHODS = {"dpmm": _dpmm, "smartnoise": _smartnoise}


def _within(order: dict[str, Any], made: Any) -> Any:
    """The method made with the given epsilon, or the next lower one at which the rho that it
    states is no more than what it was given: conversions differ in their last digits."""
    epsilon = order["epsilon"]
    for _ in range(_MOST_STEPS):
        model = made(epsilon, order["delta"])
        if 0 < _stated(model) <= order["rho"]:
            return model
        epsilon *= _LITTLE_LESS
    raise SystemExit("the library states a larger rho than it was given")


def _stated(model: Any) -> float:
    return float(getattr(model, "generator", model).rho)


def _reply(
    factors: list[Any], total: float, merges: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = dict(merges)
    axes = []
    for i, factor in enumerate(factors):
        axes.append([int(name.lstrip("xcol")) for name in factor.domain.attrs])
        arrays[f"logs{i}"] = np.ascontiguousarray(np.asarray(factor.values), dtype=np.float64)
    return {"axes": axes, "rows": total}, arrays


if __name__ == "__main__":
    main(int(sys.argv[1]))
