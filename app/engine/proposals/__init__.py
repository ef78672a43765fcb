"""A dictionary proposed from a file: private until its custodian confirms each column.

Everything in it comes from the private data, so none of it is public. Each field is marked
`"proposed": true`, which `Schema.parse` refuses. The custodian checks the field against what is
publicly known, corrects it, and removes the mark. Notes say where the proposal guesses.
"""

from app.engine.proposals.table import Note, Proposal, propose

__all__ = ["Note", "Proposal", "propose"]
