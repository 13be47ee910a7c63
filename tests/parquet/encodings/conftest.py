"""Either kind of kernels for the tests of encodings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skipstone.parquet.encodings.kernels import COMPILED, NUMPY
from tests.parquet.encodings.drawing import using

if TYPE_CHECKING:
    from collections.abc import Iterator


# Of a wider scope than a function, because Hypothesis runs a test many times with one fixture.
@pytest.fixture(scope="class", params=[NUMPY, COMPILED.load()], ids=["numpy", "compiled"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield
