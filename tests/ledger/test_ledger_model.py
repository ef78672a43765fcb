"""Whatever is asked for, in whatever order: the books equal an exact model of them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from bookkeeping import Books, add_grant, add_principal, guarantee, make_store, open_books
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy.orm import Session

from app.database import new_id
from app.datasets.models import DatasetRow
from app.engine.privacy.loss import Accountant, Charge
from app.integrity import ledgers
from app.ledger import admission, budgets, repository
from app.ledger.models import GrantRow
from app.ledger.terms import Terms
from app.problems import BudgetExceeded, Conflict
from app.security.models import PrincipalRow

EPSILONS = st.sampled_from(["0.1", "0.25", "0.333333333333", "1", "0.05"])
DELTAS = st.sampled_from(["0", "1e-8", "3.3e-7"])


class Ledger(RuleBasedStateMachine):
    """One account with two analysts, one of them with an allowance of 1 and 2e-8."""

    ALLOWANCE = (10**12, 2 * 10**10)

    @initialize(accountant=st.sampled_from(list(Accountant)), epsilon=st.sampled_from(["1", "3"]))
    def open(self, accountant: Accountant, epsilon: str) -> None:
        self.folder = TemporaryDirectory()
        self.database = make_store(Path(self.folder.name))
        self.books: Books = open_books(self.database, epsilon, "1e-6", accountant, "0")
        with self.database.write() as session:
            self.grants = [
                add_grant(session, self.books.dataset_id, self._analyst(session), cap=cap)
                for cap in (None, self.ALLOWANCE)
            ]
            self.cap = self._cap(session)
        self.charges: dict[str, tuple[Charge, str | None]] = {}

    def _analyst(self, session: Session) -> str:
        row: PrincipalRow = add_principal(session, analyst=True)
        return row.id

    def _cap(self, session: Session) -> Charge:
        account = self.books.account(session)
        return Charge(account.cap_primary, account.cap_delta)

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            self.folder.cleanup()

    def _spent(self, grant_id: str | None = None) -> tuple[int, int]:
        booked = [
            charge for charge, by in self.charges.values() if grant_id is None or by == grant_id
        ]
        return sum(one.primary for one in booked), sum(one.delta for one in booked)

    def _fits(self, charge: Charge, grant_id: str | None) -> bool:
        primary, delta = self._spent()
        within = primary + charge.primary <= self.cap.primary
        within &= delta + charge.delta <= self.cap.delta
        if grant_id == self.grants[1].id:
            primary, delta = self._spent(grant_id)
            within &= primary + charge.primary <= self.ALLOWANCE[0]
            within &= delta + charge.delta <= self.ALLOWANCE[1]
        return within

    @rule(epsilon=EPSILONS, delta=DELTAS, who=st.sampled_from([None, 0, 1]))
    def ask(self, epsilon: str, delta: str, who: int | None) -> None:
        release_id = new_id("rl")
        with self.database.write() as session:
            grant = None if who is None else session.get(GrantRow, self.grants[who].id)
            grant_id = None if grant is None else grant.id
            asked = guarantee(epsilon=epsilon, delta=delta)
            account = self.books.account(session)
            terms = Terms.of(asked, Accountant(account.accountant))
            seen = admission.preview(
                session,
                account=account,
                grant=grant,
                reveal_account=True,
                terms=terms,
            )
            assert seen.fits == self._fits(terms.charge, grant_id)
            try:
                admitted = self.books.admit(session, asked, grant=grant, release_id=release_id)
            except BudgetExceeded:
                assert not seen.fits
            else:
                assert seen.fits
                assert admitted.charge == terms.charge
                self.charges[release_id] = (admitted.charge, grant_id)

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        release_id = data.draw(st.sampled_from(sorted(self.charges)))
        charge, grant_id = self.charges.pop(release_id)
        with self.database.write() as session:
            admission.refund(
                session,
                account_id=self.books.account_id,
                grant_id=grant_id,
                dataset_id=self.books.dataset_id,
                release_id=release_id,
                principal_id=self.books.owner_id,
                charge=charge,
            )

    @rule(epsilon=st.sampled_from(["0.5", "1", "2", "4"]))
    def set_budget(self, epsilon: str) -> None:
        with self.database.write() as session:
            before = self._cap(session)
            try:
                budgets.change(
                    session,
                    self.books.account(session),
                    dataset_id=self.books.dataset_id,
                    principal_id=self.books.owner_id,
                    epsilon=Decimal(epsilon),
                    delta=None,
                    delta_for_approximate=None,
                    reason="a test",
                )
            except Conflict:
                assert self._cap(session) == before
            else:
                self.cap = self._cap(session)
                assert self._spent() <= (self.cap.primary, self.cap.delta)

    def _dataset(self, session: Session) -> DatasetRow:
        found = session.get(DatasetRow, self.books.dataset_id)
        assert found is not None
        return found

    @invariant()
    def the_books_equal_the_model(self) -> None:
        with self.database.read() as session:
            account = self.books.account(session)
            assert (account.spent_primary, account.spent_delta) == self._spent()
            assert account.spent_primary <= account.cap_primary <= account.highest_primary
            for grant in self.grants:
                position = repository.grant_position(session, grant.id)
                assert (position.spent_primary, position.spent_delta) == self._spent(grant.id)
            found = ledgers.verify(session, self.books.account_id)
            assert found.problems == ()
            assert found.entries == account.entries
            assert not repository.unbalanced(session)


Ledger.TestCase.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
TestLedger = Ledger.TestCase
