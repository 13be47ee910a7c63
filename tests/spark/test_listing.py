"""A listing's text is parsed with certainty, whatever the paths hold, or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skipstone.identity import encode_uri, local_etag
from skipstone.spark.relation import FileListing
from skipstone.storage.file_status import ListingError

if TYPE_CHECKING:
    from pathlib import Path

AWKWARD = [
    "/t/plain.parquet",
    "/t/a b%20é=ü.parquet",
    "/t/new\nline.parquet",
    "/t/x; isDirectory=false; length=3; replication=1, y.parquet",
    "/t/LocatedFileStatus{path=file:/other; isDirectory=true; length=9}.parquet",
    "/t/p=a%2Fb%3Dc/q=__HIVE_DEFAULT_PARTITION__/😀.parquet",
]


def printed(path: str, size: int, mtime: int, *, kind: str = "LocatedFileStatus") -> str:
    """A file status as Hadoop prints it."""
    return (
        f"{kind}{{path=file:{path}; isDirectory=false; length={size}; replication=1; "
        f"blocksize=33554432; modification_time={mtime}; access_time=0; owner=; group=; "
        "permission=rw-rw-rw-; isSymlink=false; hasAcl=false; isEncrypted=false; "
        "isErasureCoded=false}"
    )


paths = st.sampled_from(AWKWARD) | st.text(
    st.characters(exclude_characters="/\x00", exclude_categories=["Cs"]), min_size=1
).map(lambda name: f"/t/{name}")


@given(st.lists(st.tuples(paths, st.integers(0, 2**62), st.integers(0, 2**53))), st.booleans())
def test_what_was_printed_is_parsed(files: list[tuple[str, int, int]], wrapped: bool) -> None:
    texts = [printed(*file) for file in files]
    if wrapped:
        texts = [f"FileStatusWithMetadata({text},Map())" for text in texts]
    listing = FileListing.parse(texts)
    assert [f"file:{path}" for path, _, _ in files] == list(listing.spelled)
    assert [size for _, size, _ in files] == listing.sizes.tolist()
    assert [mtime for _, _, mtime in files] == listing.mtimes.tolist()


def test_paths_are_canonical() -> None:
    listing = FileListing.parse([printed(path, 1, 2) for path in AWKWARD])
    assert listing.paths == AWKWARD
    assert listing.local


def test_a_located_status_of_s3a_lies_within_another() -> None:
    """As Hadoop 3.5 prints it, and Spark around it."""
    inner = printed("/x", 814, 1_795_668_323_000, kind="S3ALocatedFileStatus").replace(
        "file:/x", "s3a://b/k"
    )
    text = f"S3ALocatedFileStatus{{{inner}[eTag='\"2cb9\"', versionId='']}}"
    for each in (text.replace("']}", "'}"), f"FileStatusWithMetadata({text},Map())"):
        listing = FileListing.parse([each])
        assert listing.paths == ["s3://b/k"]
        assert listing.sizes.tolist() == [814]
        assert listing.mtimes.tolist() == [1_795_668_323_000]
        assert listing.etags == ('"2cb9"',)


def test_object_stores_keep_bucket_and_etag() -> None:
    text = printed("/x", 1, 2, kind="S3ALocatedFileStatus").replace(
        "file:/x", "s3a://b/k %.parquet"
    )
    listing = FileListing.parse([f"{text}[eTag='\"0af3\"', versionId='null']"])
    assert listing.paths == ["s3://b/k %.parquet"]
    assert listing.uris(np.array([0])) == ["s3a://b/k%20%25.parquet"]
    assert listing.etags == ('"0af3"',)
    assert not listing.local


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        printed("/x", 1, 2)[:-1],
        printed("/x", 1, 2) + "; more=1",
        printed("/x", 1, 2).replace("length=1", "length=-1"),
        printed("/x", 1, 2).replace("modification_time=2", "modification_time=soon"),
    ],
)
def test_what_does_not_match_is_refused(text: str) -> None:
    with pytest.raises(ListingError):
        FileListing.parse([printed("/y", 1, 2), text])


def test_local_files_are_what_they_are_now(tmp_path: Path) -> None:
    names = ["a b%20é=ü", "new\nline", "100%", "😀", "x; isDirectory=false"]
    for name in names:
        (tmp_path / name).write_bytes(b"1" * len(name))
    # Spark's inputFiles has three slashes, its file_path has one.
    paths = [encode_uri(str(tmp_path / name)) for name in names]
    uris = [path.replace("file:", "file://") for path in paths]
    listing = FileListing.of_local(uris)
    assert listing is not None
    assert listing.paths == [str(tmp_path / name) for name in names]
    assert listing.uris(np.arange(5)) == paths
    assert listing.sizes.tolist() == [len(name) for name in names]
    now = (tmp_path / names[3]).stat()
    assert listing.etags is not None
    assert listing.etags[3] == local_etag(now)
    assert listing.mtimes[3] == now.st_mtime_ns // 10**6
    assert FileListing.of_local([*uris, "s3a://b/k"]) is None
    assert FileListing.of_local([*uris, f"file://{tmp_path}/gone"]) is None
    empty = FileListing.of_local([])
    assert empty is not None
    assert len(empty) == 0


def test_a_file_that_changed_or_went_is_noticed(tmp_path: Path) -> None:
    """Four files: one as listed, one longer, one of other time, one gone."""
    texts = []
    for name in ("same", "longer", "later", "gone"):
        path = tmp_path / name
        path.write_bytes(b"1234")
        now = path.stat()
        texts.append(printed(str(path), now.st_size, now.st_mtime_ns // 10**6))
    listing = FileListing.parse(texts)
    longer = tmp_path / "longer"
    before = longer.stat()
    longer.write_bytes(b"12345")
    os.utime(longer, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.utime(tmp_path / "later", ns=(0, before.st_mtime_ns + 5_000_000))
    (tmp_path / "gone").unlink()
    indices = np.arange(4)
    now_stats = listing.stat(indices)
    assert listing.unchanged(indices, now_stats).tolist() == [True, False, False, False]
    assert now_stats.size.tolist() == [4, 5, 4, -1]
    assert now_stats.inode[0] == (tmp_path / "same").stat().st_ino
