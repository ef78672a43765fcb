"""Ids in the paths of requests."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

# Ids have 23 characters; longer texts are refused before they reach a query.
_LONGEST = 64

DatasetId = Annotated[str, Path(description="Id of the dataset (`ds_...`).", max_length=_LONGEST)]
ReleaseId = Annotated[str, Path(description="Id of the release (`rl_...`).", max_length=_LONGEST)]
SampleId = Annotated[str, Path(description="Id of the sample (`sm_...`).", max_length=_LONGEST)]
GrantId = Annotated[str, Path(description="Id of the grant (`gr_...`).", max_length=_LONGEST)]
PrincipalId = Annotated[
    str, Path(description="Id of the principal (`pr_...`).", max_length=_LONGEST)
]
PublicationId = Annotated[
    str, Path(description="Id of the publication (`pb_...`).", max_length=_LONGEST)
]
KeyId = Annotated[str, Path(description="Id of the key (`ky_...`).", max_length=_LONGEST)]
