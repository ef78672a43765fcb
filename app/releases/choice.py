"""Which synthesizer a request gets, and what it would cost: the one that it names, or `auto`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app.engine.catalog import registry
from app.engine.catalog.auto import AUTO, AutoParams, Request, choices, form_for
from app.engine.catalog.registry import Entry
from app.engine.privacy.loss import PrivacyLoss
from app.problems import FieldError, Invalid
from app.releases.catalogue import Catalogue
from app.releases.costing import Costing, cost_of, terms_of
from app.releases.facts import Facts
from app.releases.forms import plain_form
from app.releases.schemas import ReleaseIn
from app.settings import Settings

# Pointers to preferences: another method could avoid a problem here only by ignoring it.
_PREFERENCES = frozenset({"/params/target", "/public_dataset"})


def cost(facts: Facts, catalogue: Catalogue, form: ReleaseIn, settings: Settings) -> Costing:
    """Cost a request: its form and limits, and the synthesizer's own check of them.

    Where no synthesizer is named, the first that could run is picked. If none could, the answer
    lists what prevents the first one from running. The same holds if the first one cannot meet a
    preference: the next one might run, but only because it ignores the preference. A public dataset
    that the picked method would not read is a problem if a better method could run without it.
    """
    if form.synthesizer != AUTO:
        return cost_of(facts, catalogue, form, settings)
    try:
        params = catalogue.auto_params(plain_form(form.params))
    except Invalid as error:
        return _without_method(facts, form, error)
    picked, refused = _first_to_run(facts, catalogue, form, params, settings)
    if picked is None:
        # The best method's problems are the ones worth correcting.
        return refused[0]
    better = _better_without_public(picked, facts, catalogue, form, params, settings)
    if better is not None and better in [each.entry for each in refused]:
        problems = (*refused[0].problems, _public_prevents(better))
        return replace(refused[0], problems=problems)
    return replace(picked, why=_why(picked, refused))


def _without_method(facts: Facts, form: ReleaseIn, error: Invalid) -> Costing:
    terms, problems = None, facts.problems
    try:
        terms = terms_of(facts, form)
    except Invalid as wrong:
        problems = (*problems, *wrong.errors)
    return Costing(None, {}, terms, None, (*problems, *error.errors))


def _first_to_run(
    facts: Facts, catalogue: Catalogue, form: ReleaseIn, params: AutoParams, settings: Settings
) -> tuple[Costing | None, list[Costing]]:
    """The first that could run, with why it is tried, and those before it that could not."""
    refused: list[Costing] = []
    for why, named in _candidates(facts, form, params):
        costed = cost_of(facts, catalogue, named, settings)
        if not costed.problems:
            return replace(costed, why=why), refused
        refused.append(costed)
        if any(problem.pointer in _PREFERENCES for problem in refused[0].problems):
            break
    return None, refused


def _candidates(
    facts: Facts, form: ReleaseIn, params: AutoParams
) -> Iterator[tuple[str, ReleaseIn]]:
    """Why a method is tried, and the request that names it; best first."""
    public = None if facts.public is None else facts.public.facts
    request = Request(facts.schema, facts.unit, params, _loss(facts, form), public)
    for choice in choices(request):
        named = {"synthesizer": choice.synthesizer, "params": form_for(choice.synthesizer, params)}
        yield choice.why, form.model_copy(update=named)


def _loss(facts: Facts, form: ReleaseIn) -> PrivacyLoss | None:
    """The loss of a run without approximate steps; None for a guarantee that is refused."""
    try:
        return terms_of(facts, form).loss
    except Invalid:
        return None


def _better_without_public(
    picked: Costing,
    facts: Facts,
    catalogue: Catalogue,
    form: ReleaseIn,
    params: AutoParams,
    settings: Settings,
) -> Entry | None:
    """What would be picked without the public dataset, if the picked method does not read it."""
    assert picked.entry is not None
    if form.public_dataset is None or registry.ours(picked.entry.name).uses_public != "no":
        return None
    alone = form.model_copy(update={"public_dataset": None})
    first, refused = _first_to_run(replace(facts, public=None), catalogue, alone, params, settings)
    return (refused[0] if first is None else first).entry


def _public_prevents(better: Entry) -> FieldError:
    return FieldError(
        "/public_dataset",
        f"No method that learns from the public dataset can run here; `{better.name}` could"
        " without it.",
        "Leave the field out, or name a smaller public dataset.",
    )


def _why(picked: Costing, refused: Sequence[Costing]) -> str:
    """Why it was picked, and why the methods before it cannot run."""
    passed_over = (
        f"`{each.entry.name}` cannot run here ({each.problems[0].message.rstrip('.')})"
        for each in refused
        if each.entry is not None
    )
    return "; ".join((*passed_over, picked.why or ""))
