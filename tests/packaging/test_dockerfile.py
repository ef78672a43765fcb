"""The Dockerfile's own reader; `make image-check` carries the Dockerfile out."""

from __future__ import annotations

from pathlib import Path

import pytest
from installed import REPOSITORY

from scripts.check_dockerfile import BuildContext, Uncovered, instructions


def test_instructions_are_joined_over_lines_and_parted_from_their_flags():
    written = "# a note\nFROM a AS b\nRUN x \\\n  # why\n  && y\nCOPY --from=b --chown=u /p /q\n"
    read = list(instructions(written))
    assert [(one.name, " ".join(one.rest.split())) for one in read] == [
        ("FROM", "a AS b"),
        ("RUN", "x && y"),
        ("COPY", "/p /q"),
    ]
    assert read[2].flags == {"from": "b", "chown": "u"}


@pytest.mark.parametrize(
    ("written", "command"),
    [
        ('CMD ["a", "b c"]', ["a", "b c"]),
        ("CMD a b", ["/bin/sh", "-c", "a b"]),
        ('HEALTHCHECK --interval=3s CMD ["a"]', ["a"]),
        ("RUN a && b", ["/bin/sh", "-c", "a && b"]),
    ],
)
def test_commands_are_read_in_both_forms(written, command):
    (instruction,) = instructions(written)
    assert instruction.command == command


def test_the_build_context_holds_what_dockerignore_lets_through(tmp_path: Path):
    context, image = tmp_path / "context", tmp_path / "image"
    for name in ("app/main.py", "app/__pycache__/main.pyc", "secret.txt"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        (context / name).touch()
    (context / ".dockerignore").write_text("*\n!app\n**/__pycache__\n")
    files = BuildContext(context)
    files.copy("app", image)
    assert [path.name for path in image.rglob("*")] == ["main.py"]
    with pytest.raises(Uncovered, match=r"secret\.txt"):
        files.copy("secret.txt", image)


def test_the_image_gets_no_more_of_the_checkout_than_it_copies():
    allowed = {
        line[1:]
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        name
        for one in instructions((REPOSITORY / "Dockerfile").read_text())
        if one.name == "COPY" and "from" not in one.flags
        for name in one.rest.split()[:-1]
    }
    assert copied == allowed
