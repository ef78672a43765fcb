"""The report of a release as one page: pictures, figures, and the certificate in words."""

from app.reports.page.facts import Facts, facts_of
from app.reports.page.render import CSP, render

__all__ = ["CSP", "Facts", "facts_of", "render"]
