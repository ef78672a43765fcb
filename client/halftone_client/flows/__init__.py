"""What the service can be asked, one flow each, by subject."""

from halftone_client.flows import datasets, people, publications, releases, reports, waiting

__all__ = ["datasets", "people", "publications", "releases", "reports", "waiting"]
