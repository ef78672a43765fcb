"""Adapted methods as synthesizers: declared, over the bounded table.

`fit` spends all of its allowance on one trusted call before the library starts, sends the coded
table and public facts to the library's process, and keeps the distribution that comes back.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

from app.engine.adapters import virtualenvs
from app.engine.adapters.budget import library_guarantee, rho_of_rows
from app.engine.adapters.fitted import (
    MOST_MODEL_CELLS,
    most_cells_of_a_tree,
    table_model,
    without_a_pair,
)
from app.engine.adapters.libraries import LIBRARIES, library_of
from app.engine.adapters.params import AdaptedParams, AimParams, DpmmAimParams, MstParams
from app.engine.adapters.running import Order, run
from app.engine.columns.axes import Axes, choose_axes
from app.engine.graphical.table_model import TableModel
from app.engine.method import Case, Limits, Needs, Problem, Progress, Session, Synthesizer
from app.engine.method.needs import table_bytes
from app.engine.privacy.unit_budget import UnitBudget
from app.engine.schema import PrivacyUnit, Schema
from app.engine.table import PublicTable

P = TypeVar("P", bound=AdaptedParams)

# Logarithms and probabilities of the fitted model, and their copies.
_BYTES_PER_CELL = 64
_AIM_PAPER = "McKenna, Mullins, Sheldon and Miklau (2022)"
_COARSER = "choose fewer columns, or coarser `bins`"


class Adapted(Synthesizer, Generic[P]):
    """A method of a library."""

    @abstractmethod
    def options(self, params: P) -> dict[str, Any]:
        """What the method is made with, beside what it may spend."""

    @abstractmethod
    def noise_parts(self, columns: int) -> float:
        """A column's own histogram gets one of so many equal parts of rho."""

    @abstractmethod
    def model_cells(self, axes: Axes, params: P) -> int:
        """The most cells that the fitted model has by its params."""

    @abstractmethod
    def problems(self, axes: Axes, params: P) -> tuple[Problem, ...]: ...

    def needs(self, case: Case, params: P) -> Needs:
        schema, limits = case.schema, case.limits
        axes, problems = choose_axes(schema, params.columns, params.bins)
        problems += _budget_problems(case.budget)
        if len(axes.names) < 2:
            message = "the method models how columns go together, and there are fewer than two"
            alone = Problem("/params/columns", message, "name two or more")
            return Needs(problems=(*problems, alone))
        cells = self.model_cells(axes, params)
        return Needs(
            cells=cells,
            memory_bytes=self._memory_bytes(axes, cells, limits),
            draws=sum(axes.shape),
            columns=len(axes.names),
            header_cells=axes.header_cells,
            expected_error=self._error(axes, case.budget),
            problems=problems + self.problems(axes, params),
        )

    def fit(
        self,
        session: Session,
        params: P,
        public: PublicTable | None,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        progress: Progress,
    ) -> TableModel:
        library = library_of(self.name)
        python = virtualenvs.interpreter(virtualenvs.folder_of_this_process(), library)
        axes, _ = choose_axes(session.schema, params.columns, params.bins)
        order = Order(
            library.name,
            self.name.partition(":")[2],
            self.options(params),
            library_guarantee(UnitBudget(session.unit, session.remaining)),
        )
        table = session.trusted_call(session.remaining)
        columns = [axes.groupings[name].cell_of(table.codes[name]) for name in axes.names]
        request = order.request(axes.shape, columns)
        del table, columns
        progress(0.1, "fitting by the library")
        header, arrays = run(python, request)
        progress(0.95, "checking what came back")
        return table_model(self.name, axes, session.unit, header, arrays)

    def load(self, schema: Schema, unit: PrivacyUnit, data: bytes) -> TableModel:
        return TableModel.load(self.name, schema, unit, data)

    def _memory_bytes(self, axes: Axes, cells: int, limits: Limits) -> int:
        library = library_of(self.name)
        a_row = library.row_bytes + library.value_bytes * len(axes.names)
        held = library.process_bytes + limits.max_total_rows * a_row
        return held + table_bytes(len(axes.names), limits) + cells * _BYTES_PER_CELL

    def _error(self, axes: Axes, budget: UnitBudget) -> float:
        rho = rho_of_rows(budget) / 10**12
        if not rho:
            return 0.0
        return float(np.sqrt(self.noise_parts(len(axes.names)) / (2 * rho)))


class DpmmMst(Adapted[MstParams]):
    name = "dpmm:mst"
    title = "Maximum spanning tree, by the library dpmm"
    reference = (
        f"McKenna, Miklau and Sheldon (2021), as implemented in dpmm {LIBRARIES['dpmm'].version}"
    )
    Params = MstParams

    def options(self, params: MstParams) -> dict[str, Any]:
        return {"compress": params.compress, "n_iters": params.iterations}

    def noise_parts(self, columns: int) -> float:
        """The library spends a third of rho on columns, in equal parts."""
        return 3.0 * columns

    def model_cells(self, axes: Axes, params: MstParams) -> int:  # noqa: ARG002
        return most_cells_of_a_tree(axes.shape)

    def problems(self, axes: Axes, params: MstParams) -> tuple[Problem, ...]:
        cells = self.model_cells(axes, params)
        if cells <= MOST_MODEL_CELLS:
            return ()
        message = f"the tree could have {cells} cells; {MOST_MODEL_CELLS} are the most"
        return (Problem("/params/columns", message, _COARSER),)


AP = TypeVar("AP", bound=AimParams)


class _Aim(Adapted[AP]):
    def options(self, params: AP) -> dict[str, Any]:
        return {
            "degree": params.degree,
            "max_cells": params.max_cells,
            "max_model_size": params.max_model_mib,
        }

    def noise_parts(self, columns: int) -> float:
        """The library plans 16 rounds a column, and measures with nine tenths of each."""
        return 16.0 * columns / 0.9

    def model_cells(self, axes: Axes, params: AP) -> int:
        return max(math.floor(params.max_model_mib * 2**17), sum(axes.shape))

    def problems(self, axes: Axes, params: AP) -> tuple[Problem, ...]:
        found = [
            Problem(
                "/params/max_cells",
                f"`{name}` makes more than {params.max_cells} cells with any other column",
                "raise `max_cells`, or give the column coarser `bins`",
            )
            for name in without_a_pair(axes, params.max_cells)
        ]
        if params.degree > len(axes.names):
            message = "there are fewer columns than a marginal is to have"
            found.append(Problem("/params/degree", message, "lower it, or name more columns"))
        return tuple(found)


class DpmmAim(_Aim[DpmmAimParams]):
    name = "dpmm:aim"
    title = "Adaptive and iterative mechanism, by the library dpmm"
    reference = f"{_AIM_PAPER}, as implemented in dpmm {LIBRARIES['dpmm'].version}"
    Params = DpmmAimParams

    def options(self, params: DpmmAimParams) -> dict[str, Any]:
        return {
            **super().options(params),
            "compress": params.compress,
            "n_iters": params.iterations,
        }


class SmartnoiseAim(_Aim[AimParams]):
    name = "smartnoise:aim"
    title = "Adaptive and iterative mechanism, by the library smartnoise-synth"
    reference = (
        f"{_AIM_PAPER}, as implemented in smartnoise-synth {LIBRARIES['smartnoise'].version}"
    )
    Params = AimParams


def _budget_problems(budget: UnitBudget) -> tuple[Problem, ...]:
    if budget.loss.kind != "zcdp":
        return (
            Problem(
                "/guarantee",
                "the library adds Gaussian noise, which no pure guarantee holds",
                "ask for epsilon and delta, or for rho",
            ),
        )
    if rho_of_rows(budget):
        return ()
    unit = budget.unit
    return (
        Problem(
            "/guarantee",
            f"the library protects single rows, so that of rho it would get one part in "
            f"{unit.max_rows**2} ({unit.max_rows} rows of one entity count), which is too little",
            "ask for more, use a dataset with fewer `max_rows`, or a method of Halftone's own",
        ),
    )
