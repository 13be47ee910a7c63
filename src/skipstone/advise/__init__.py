"""Which indexes a table should have, what each would save, and what it would cost in bytes.

A sample of files says it: ``sampling`` reads them within a budget, ``measure`` makes figures of
what was read, ``propose`` decides by rules that each have a reason, ``sizes`` estimates bytes,
``Advice`` is the value that comes out. Nothing is proposed where nothing helps.
"""

from .advice import Advice, ColumnAdvice
from .propose import advise

__all__ = ["Advice", "ColumnAdvice", "advise"]
