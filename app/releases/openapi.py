"""Parts of the API description that no model gives: each synthesizer's form, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.engine.catalog import auto, registry
from app.engine.catalog.auto import AUTO, AutoParams

if TYPE_CHECKING:  # workers know the forms too, and serve no HTTP
    from fastapi.openapi.models import Example

_PUBLIC_DATASET = "ds_k3x7wq2m9vhz5tpc8ryd"

_AUTO_REQUEST: Mapping[str, Any] = {"guarantee": {"epsilon": 1, "delta": 1e-6}, "rows": 10000}


def _example(name: str) -> dict[str, Any]:
    """A request by that name, as its method gives it."""
    if name == AUTO:
        return dict(_AUTO_REQUEST)
    synthesizer = registry.builtin(name)
    public = _PUBLIC_DATASET if synthesizer.uses_public == "required" else None
    return synthesizer.example.request(name, public)


# Requests to choose from on the page.
REQUESTS: dict[str, Example] = {
    name: {
        "summary": auto.TITLE if name == AUTO else registry.builtin(name).title,
        "value": _example(name),
    }
    for name in (AUTO, *registry.built_ins())
}

_AMOUNTS = {
    "type": ["object", "null"],
    "description": "In the account's terms: epsilon and delta, or rho and delta.",
    "additionalProperties": {"type": "string"},
}

BUDGET_EXCEEDED: dict[str, Any] = {
    "title": "BudgetExceeded",
    "allOf": [
        {"$ref": "#/components/schemas/Problem"},
        {
            "type": "object",
            "description": "A refusal by the budget (`/problems/budget-exceeded`) also has these.",
            "properties": {
                "requested": _AMOUNTS,
                "requested_as_epsilon": {
                    **_AMOUNTS,
                    "description": "On `zcdp` accounts: the same in epsilon, as it was asked for;"
                    " for a request in rho, at a delta of 1e-6.",
                },
                "spent": {
                    **_AMOUNTS,
                    "description": "Null where the budget of the account is not shown.",
                },
                "spent_as_epsilon": {
                    **_AMOUNTS,
                    "description": "On `zcdp` accounts: the same in epsilon, at the request's own"
                    " delta, or at 1e-6 if it has none.",
                },
                "remaining": {
                    **_AMOUNTS,
                    "description": "Null where the budget of the account is not shown.",
                },
                "remaining_as_epsilon": {
                    **_AMOUNTS,
                    "description": "On `zcdp` accounts: the largest epsilon of one release that"
                    " this covers, at the same delta.",
                },
                "scope": {
                    "enum": ["account", "grant"],
                    "description": "What has too little left: your allowance, which comes first if"
                    " both have, or the account.",
                },
                "limited_by": {
                    "enum": ["epsilon", "delta", "rho", None],
                    "description": "Which amount has too little left; null where the budget of the"
                    " account is not shown.",
                },
                "largest_epsilon": {
                    "type": ["string", "null"],
                    "description": "What would fit at the request's own delta; null if nothing.",
                },
            },
        },
    ],
    "example": {
        "type": "/problems/budget-exceeded",
        "title": "The privacy budget cannot cover this",
        "status": 409,
        "detail": "The release costs rho 0.024355970359 (epsilon 1 at delta 0.000001). Your"
        " allowance has rho 0.00485 (epsilon 0.423036853062 at delta 0.000001) left.",
        "instance": "/v1/datasets/ds_p6wqj3ytm8kz5hvc2nxd/releases",
        "errors": [],
        "requested": {"rho": "0.024355970359", "delta": "0"},
        "requested_as_epsilon": {"epsilon": "1", "delta": "0.000001"},
        "spent": {"rho": "1.534428763866", "delta": "0"},
        "spent_as_epsilon": {"epsilon": "9.981335917322", "delta": "0.000001"},
        "remaining": {"rho": "0.00485", "delta": "0"},
        "remaining_as_epsilon": {"epsilon": "0.423036853062", "delta": "0.000001"},
        "scope": "grant",
        "limited_by": "rho",
        "largest_epsilon": "0.423036853062",
    },
}


def with_forms(schema: dict[str, Any]) -> None:
    """Add to the schema of a release request the form of each built-in synthesizer."""
    names = registry.built_ins()
    schema["oneOf"] = [
        _auto(),
        *(_alternative(name) for name in names),
        _third_party([AUTO, *names]),
    ]
    schema["examples"] = [_example(name) for name in (AUTO, *names)]


def _auto() -> dict[str, Any]:
    return {
        "title": AUTO,
        "description": auto.TITLE,
        "properties": {
            "synthesizer": {"const": AUTO, "description": "Or left out."},
            "params": {
                "anyOf": [inlined(AutoParams.model_json_schema()), {"type": "null"}],
                "description": "What any method takes.",
            },
        },
    }


def _alternative(name: str) -> dict[str, Any]:
    synthesizer = registry.builtin(name)
    form = synthesizer.Params.model_json_schema()
    return {
        "title": name,
        "description": synthesizer.title,
        "required": ["synthesizer"],
        "properties": {
            "synthesizer": {"const": name, "description": synthesizer.title},
            "params": {
                "anyOf": [inlined(form), {"type": "null"}],
                "description": "Its form; every field has a default unless it is required.",
            },
        },
    }


def _third_party(names: list[str]) -> dict[str, Any]:
    return {
        "title": "another",
        "required": ["synthesizer"],
        "description": "Any other installed synthesizer: see `/v1/synthesizers`.",
        "properties": {
            "synthesizer": {
                "type": "string",
                "not": {"enum": names},
                "description": "Its registered name.",
            }
        },
    }


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its own definitions in place of references to them."""
    definitions = schema.get("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if isinstance(reference, str):
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            return resolved(definitions[reference.removeprefix("#/$defs/")] | siblings)
        left_out = ("$defs", "discriminator")
        return {key: resolved(value) for key, value in node.items() if key not in left_out}

    inline: dict[str, Any] = resolved(schema)
    return inline
