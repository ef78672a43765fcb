"""How often an analyst may be refused by an account whose budget is not shown to them.

A refused release costs nothing and says that the account has less left than the charge. Enough
refusals would find what it has left, which only `show_budget` is to show.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from app.access.permission import Access
from app.problems import BudgetExceeded, TooManyRequests
from app.security.principals import Principal
from app.security.windows import Windows

MOST_REFUSALS = 10
WINDOW_S = 3600.0


class HiddenRefusals:
    """Counts an analyst's refusals by each account, in this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._refused: Windows[tuple[str, str | None]] = Windows(WINDOW_S, clock)

    @contextlib.contextmanager
    def counted(self, principal: Principal, access: Access) -> Iterator[None]:
        """Count a refusal of the admission inside the block.

        Raises `TooManyRequests` where there were too many, whether or not this one would fit.
        """
        if access.shows_budget:
            yield
            return
        name = (principal.id, access.dataset.account_id)
        left_s = self._refused.left_s(name, MOST_REFUSALS)
        if left_s:
            raise TooManyRequests(
                "The budget refused too many of your releases. Ask the dataset's custodian how much"
                " you may spend, then wait.",
                retry_after_s=left_s,
            )
        try:
            yield
        except BudgetExceeded as refused:
            if refused.extra["scope"] == "account":
                self._refused.count(name)
            raise
