"""Builds over files whose columns have other names than in the table: the facts of a file use the
names of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from skipstone.errors import UnsupportedError
from skipstone.facts.renamed import under
from skipstone.pruning import Cause, Reason
from skipstone.pruning.table_schema import find_field
from skipstone.table_formats import SnapshotListing
from skipstone.table_formats.snapshot import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from skipstone.facts import Definition, MatchedFacts
    from skipstone.facts.index_encryption import WriteEncryption
    from skipstone.pruning.kind import Index
    from skipstone.storage import Listing

    from .open_table import OpenTable


def lacking(
    matched: MatchedFacts,
    listing: Listing,
    wanted: Sequence[Index],
    schema: pa.Schema,
    left_out: list[Reason],
    memory: int = 0,
) -> Iterator[tuple[tuple[Index, ...], NDArray[np.bool_]]]:
    """``by_lacking`` for the files of each naming. The indexes use the names of the files.
    Parameters that were not given are chosen for the table. ``left_out`` receives the reasons for
    indexes that are not built."""
    from skipstone.facts.coverage import by_lacking

    names = names_of(listing)
    stored = [d for each in under(matched, names) for d in each.snapshot.definitions]
    known = {(each.kind, each.columns): each.index for each in stored}
    total = len(matched.listing)
    wanted = [each.for_table(total, known.get((each.name, (each.column,)))) for each in wanted]
    if names is None:
        yield from by_lacking(matched, wanted, schema, memory)
        return
    for number, naming in enumerate(names.distinct):
        own: list[Index] = []
        mine = names.number == number
        for index in wanted:
            column = naming.to_file(index.column)
            if column is not None:
                own.append(type(index).from_params(column, index.params))
            elif count := int(np.count_nonzero(mine)):
                text = "the files lack the column, or have another name for a column of it"
                reason = Reason(
                    cause=Cause.NOT_APPLICABLE, subject=repr(index), text=text, units=count
                )
                left_out.append(reason)
        in_file = naming.in_file(schema)
        for indexes, files in by_lacking(matched, own, in_file, memory) if own else ():
            if (files & mine).any():
                yield indexes, files & mine


def schema_in(listing: Listing, schema: pa.Schema, files: NDArray[np.bool_]) -> pa.Schema:
    """The columns of the table as ``files``, of one group of ``lacking``, name them."""
    names = names_of(listing)
    return schema if names is None else names[int(np.argmax(files))].in_file(schema)


def known_indexes(
    table: OpenTable, stored: Sequence[Definition], spark: SparkSession | None
) -> list[Index]:
    """The indexes of a table by the names of its columns.

    For a table of a table format, indexes of columns that no longer exist are left out. If several
    columns had a name, it means the one whose files have the index, else the newest.
    """
    from skipstone.facts.coverage import covered

    listing = None if table.snapshots() is None else table.listing()
    if not isinstance(listing, SnapshotListing):
        return [each.index for each in stored if each.index is not None]
    matched = table.match(listing, spark, or_none=True)
    found: list[Index] = []
    views = under(matched, listing.snapshot.names)
    for definition in stored:
        index = definition.index
        if index is None:
            continue
        held = covered(matched, index)
        named: dict[Index, bool] = {}
        for view in views:
            column = view.snapshot.naming.to_table(index.column)
            if column is not None:
                now = type(index).from_params(column, index.params)
                mine = np.zeros_like(held)
                mine[view.file_of_row[view.file_of_row >= 0]] = True
                named[now] = named.get(now, False) or bool((held & mine).any())
        some = any(named.values())
        found += [each for each, has in named.items() if has or not some]
    schema, former = listing.snapshot.of_files, listing.snapshot.former
    of_now = [type(e).from_params(former.get(e.column, e.column), e.params) for e in found]
    return [each for each in dict.fromkeys(of_now) if _is_there(each, schema)]


def _is_there(index: Index, schema: pa.Schema) -> bool:
    from skipstone.predicate.indexed import columns_of_name

    return all(find_field(schema, each) is not None for each in columns_of_name(index.column))


def require_no_labels(listing: Listing, encryption: WriteEncryption | None) -> None:
    """``UnsupportedError`` if keys are chosen by names of columns that files do not have."""
    labels = {} if encryption is None else encryption.encryption.key_metadata
    if labels and names_of(listing) is not None:
        raise UnsupportedError(
            "columns have other names in some files, and the keys of indexes are named by columns",
            hint="encrypt the index with one key: leave out the keys of columns",
        )
