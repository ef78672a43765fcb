import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from app.database import Base, Database
from app.storage import reclaim as reclaim_module
from app.storage.blobs import (
    CHUNK_BYTES,
    PARTS_AT_ONCE,
    PIECE_BYTES,
    BlobCorrupt,
    BlobMissing,
    BlobStore,
    own,
    owned_bytes,
)
from app.storage.encryption import Cipher
from app.storage.models import ChunkRow
from app.storage.reclaim import reclaim


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'store.sqlite'}")
    Base.metadata.create_all(database.write_engine)
    yield database
    database.close()


def chunk_sizes(database: Database) -> list[int]:
    with database.read() as session:
        return [len(data) for data in session.scalars(select(ChunkRow.data))]


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_written_is_read_back_in_chunks_of_at_most_4_mib(
    database: Database, sealed: bool
) -> None:
    cipher = Cipher(os.urandom(32)) if sealed else None
    blobs = BlobStore(database)
    content = os.urandom(PIECE_BYTES * 2 + 7)
    pieces = (content[i : i + 1_000_003] for i in range(0, len(content), 1_000_003))
    stored = blobs.write("rl_a", "model", pieces, cipher=cipher)
    assert blobs.read_all("rl_a", "model", cipher=cipher) == content
    sizes = chunk_sizes(database)
    assert len(sizes) == 3
    assert max(sizes) <= CHUNK_BYTES
    assert blobs.size("rl_a") == blobs.size("rl_a", "model") == stored == sum(sizes)


def test_an_empty_blob_exists_and_an_absent_one_is_missing(database: Database) -> None:
    blobs = BlobStore(database)
    assert not blobs.exists("rl_a", "model")
    blobs.write("rl_a", "model", [])
    assert blobs.exists("rl_a", "model")
    assert blobs.read_all("rl_a", "model") == b""
    with pytest.raises(BlobMissing):
        blobs.read_all("rl_a", "other")


def test_writing_again_replaces_the_part_alone(database: Database) -> None:
    blobs = BlobStore(database)
    blobs.write("rl_a", "model", [os.urandom(PIECE_BYTES + 1)])
    blobs.write("rl_a", "other", [b"kept"])
    blobs.write("rl_a", "model", [b"new"])
    assert blobs.read_all("rl_a", "model") == b"new"
    assert blobs.read_all("rl_a", "other") == b"kept"


def test_altered_bytes_are_noticed_with_and_without_encryption(database: Database) -> None:
    blobs = BlobStore(database)
    cipher = Cipher(os.urandom(32))
    blobs.write("ds_a", "plain", [b"content"])
    blobs.write("ds_a", "sealed", [b"content"], cipher=cipher)
    with database.write() as session:
        session.execute(text("UPDATE chunks SET data = zeroblob(size_bytes)"))
    with pytest.raises(BlobCorrupt) as caught:
        blobs.read_all("ds_a", "plain")
    assert (caught.value.collection, caught.value.part, caught.value.sequence) == (
        "ds_a",
        "plain",
        0,
    )
    assert "content" not in str(caught.value)
    with pytest.raises(BlobCorrupt):
        blobs.read_all("ds_a", "sealed", cipher=cipher)


def test_a_sealed_chunk_moved_to_another_place_is_noticed(database: Database) -> None:
    blobs = BlobStore(database)
    cipher = Cipher(os.urandom(32))
    blobs.write("ds_a", "one", [b"first"], cipher=cipher)
    with database.write() as session:
        session.execute(text("UPDATE chunks SET part = 'two'"))
    with pytest.raises(BlobCorrupt):
        blobs.read_all("ds_a", "two", cipher=cipher)


def test_every_chunk_is_written_in_the_unit_that_the_writer_brings(database: Database) -> None:
    class Lost(Exception):
        pass

    entered = []

    @contextlib.contextmanager
    def unit() -> Iterator[Session]:
        if len(entered) == 3:
            raise Lost
        entered.append(1)
        with database.write() as session:
            yield session

    content = os.urandom(PIECE_BYTES * 3)
    with pytest.raises(Lost):
        BlobStore(database).write("rl_a", "model", [content], unit=unit)
    assert len(chunk_sizes(database)) == 2


def test_deleting_a_collection_leaves_others_alone(database: Database) -> None:
    blobs = BlobStore(database)
    with database.write() as session:
        for sequence in range(40):
            blobs.put(session, "ds_a", "column-0", sequence, b"x")
    blobs.write("ds_b", "column-0", [b"y"])
    blobs.delete("ds_a")
    assert blobs.size("ds_a") == 0
    assert blobs.read_all("ds_b", "column-0") == b"y"


def test_a_piece_beyond_the_limit_is_refused(database: Database) -> None:
    with database.write() as session, pytest.raises(ValueError, match="at most"):
        BlobStore(database).put(session, "ds_a", "p", 0, bytes(PIECE_BYTES + 1))


def test_a_blob_opens_as_a_file_for_parquet(database: Database) -> None:
    table = pa.table({"a": list(range(3_000_000))})
    held = io.BytesIO()
    pq.write_table(table, held, row_group_size=500_000, use_dictionary=False, compression="none")
    blobs = BlobStore(database)
    blobs.write("sm_a", "parquet", [held.getvalue()])
    with blobs.open("sm_a", "parquet") as file:
        assert file.size == len(held.getvalue())
        assert file.size > 2 * PIECE_BYTES
        reader = pq.ParquetFile(file)
        assert reader.read_row_group(5).column("a")[0].as_py() == 2_500_000
    with blobs.open("sm_a", "parquet") as file:
        assert file.read() == held.getvalue()
        assert file.read() == b""
        assert file.seek(-4, io.SEEK_END) == file.size - 4
        assert file.read() == b"PAR1"
        with pytest.raises(ValueError, match="negative"):
            file.seek(-1)


def test_free_pages_are_given_back_in_several_steps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim_module, "PAGES_AT_ONCE", 100)
    blobs = BlobStore(database)
    blobs.write("ds_a", "column-0", [os.urandom(PIECE_BYTES)])
    database.checkpoint()
    blobs.delete("ds_a")
    reclaim(database)
    assert database.path.stat().st_size < PIECE_BYTES / 2
    assert database.wal_bytes() == 0


def test_erased_bytes_are_neither_in_the_database_nor_in_its_log(database: Database) -> None:
    planted = b"planted-" + os.urandom(24)
    blobs = BlobStore(database)
    blobs.write("ds_a", "column-0", [planted * 40_000])
    assert planted in Path(f"{database.path}-wal").read_bytes()
    database.checkpoint()
    size = database.path.stat().st_size
    assert planted in database.path.read_bytes()
    blobs.delete("ds_a")
    reclaim(database)
    for path in database.path.parent.iterdir():
        assert planted not in path.read_bytes()
    assert database.path.stat().st_size < size / 2


def test_the_sum_of_what_an_owner_has_stored_is_kept_with_every_chunk(database: Database) -> None:
    blobs = BlobStore(database)
    with database.write() as session:
        for collection, owner in (("ds_a", "pr_a"), ("sm_a", "pr_a"), ("ds_b", "pr_b")):
            own(session, collection, owner)
            own(session, collection, "somebody else, later")

    def kept() -> dict[str, int]:
        with database.read() as session:
            return {owner: owned_bytes(session, owner) for owner in ("pr_a", "pr_b", "pr_c")}

    blobs.write("ds_a", "0", [b"x" * (PIECE_BYTES + 5)])
    blobs.write("sm_a", "0", [b"x" * 7])
    blobs.write("ds_b", "0", [b"x" * 11])
    blobs.write("nobody's", "0", [b"x" * 13])
    assert kept() == {"pr_a": PIECE_BYTES + 12, "pr_b": 11, "pr_c": 0}
    blobs.write("ds_a", "0", [b"x"])
    blobs.write("ds_a", "1", [b"xx"])
    assert kept()["pr_a"] == 10
    blobs.delete("ds_a", "1")
    assert kept()["pr_a"] == 8
    blobs.delete("ds_a")
    blobs.delete("sm_a")
    assert kept() == {"pr_a": 0, "pr_b": 11, "pr_c": 0}


def test_any_number_of_parts_is_read_at_once(database: Database) -> None:
    blobs = BlobStore(database)
    names = [str(number) for number in range(3 * PARTS_AT_ONCE + 1)]
    for name in names:
        blobs.write("ds_a", name, [name.encode()])
    with database.read() as session:
        found = blobs.get(session, "ds_a", names, 0)
        assert found == {name: name.encode() for name in names}
        with pytest.raises(BlobMissing):
            blobs.get(session, "ds_a", [*names, "missing"], 0)
