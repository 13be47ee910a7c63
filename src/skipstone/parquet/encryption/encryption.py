"""Keys and choices for writing: what a user passes to encrypt files.

Keys are given directly, with metadata that says to readers which key it is; or a KMS wraps a random
data key per file and column (``key_material.py``). Only named columns stay plaintext: a column
without a key of its own is encrypted with the footer key.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from skipstone.errors import SkipstoneError
from skipstone.predicate.types import column_name, column_path

from .ciphers import KEY_LENGTHS, CountedCipher
from .decryption import Decryption, check_aad_prefix, check_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .key_material import KmsClient


Algorithm: TypeAlias = Literal["AES_GCM_V1", "AES_GCM_CTR_V1"]
_ALGORITHMS: Final = get_args(Algorithm)
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Encryption:
    """How to encrypt files. Keys are 16, 24 or 32 bytes.

    With keys of your own: ``footer_key``, and ``column_keys`` by dotted column path (a group stands
    for the columns in it). ``footer_key_metadata`` and ``column_key_metadata`` are stored as
    plaintext, for readers who look keys up by them: labels, never keys.

    With a ``kms``: ``footer_key_id`` and ``column_key_ids`` name its master keys, and every file
    gets random data keys of ``data_key_bits``, wrapped as the key tools of parquet-java do:
    ``double_wrapping`` puts a local key between; without ``internal_key_material`` the wrapped
    keys lie in a file next to the data file, where they can be wrapped again without touching it.

    ``algorithm``: ``AES_GCM_V1``, or ``AES_GCM_CTR_V1``, which does not notice altered pages.
    ``plaintext_footer``: schema and sizes can be read without a key, and are signed.
    ``plaintext_columns`` stay plaintext; with ``encrypt_others=False`` so does every column
    without a key of its own. ``aad_prefix`` names the file (bytes, or a function from its path),
    and is kept out of it with ``store_aad_prefix=False``: readers must then give it.

    A key may encrypt 2^32 modules. All files that are encrypted with one such object count
    together, after the ``prior_invocations`` that each of its keys has made before.

    A repr names columns and sizes, never a key. Pickling includes the keys, so protect the pickle.
    A copy counts for itself.
    """

    footer_key: InitVar[bytes | None] = None
    column_keys: InitVar[Mapping[str, bytes] | None] = None
    footer_key_metadata: bytes | str | None = None
    column_key_metadata: Mapping[str, bytes | str] | None = None
    kms: KmsClient | None = None
    footer_key_id: str | None = None
    column_key_ids: Mapping[str, str] | None = None
    data_key_bits: int = 128
    double_wrapping: bool = True
    internal_key_material: bool = True
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None
    algorithm: Algorithm = "AES_GCM_V1"
    plaintext_footer: bool = False
    plaintext_columns: Sequence[str] = ()
    encrypt_others: bool = True
    aad_prefix: bytes | Callable[[str], bytes] | None = None
    store_aad_prefix: bool = True
    prior_invocations: InitVar[int] = 0

    _ciphers: dict[bytes, CountedCipher] = field(init=False, default_factory=dict)
    _footer: CountedCipher | None = field(init=False, default=None)
    _columns: dict[Path, CountedCipher | str] = field(init=False, default_factory=dict)
    _metadata: dict[Path, bytes | None] = field(init=False, default_factory=dict)
    _plaintext: frozenset[Path] = field(init=False, default=frozenset())

    def __post_init__(
        self,
        footer_key: bytes | None,
        column_keys: Mapping[str, bytes] | None,
        prior_invocations: int,
    ) -> None:
        if self.algorithm not in _ALGORITHMS:
            raise ValueError(
                f"the algorithm is one of {', '.join(_ALGORITHMS)}, not {self.algorithm!r}"
            )
        if (footer_key is None) == (self.footer_key_id is None):
            raise ValueError("either footer_key or footer_key_id is needed")
        metadata = self.footer_key_metadata or self.column_key_metadata
        wrapped = bool(self.footer_key_id or self.column_key_ids)
        if wrapped and (footer_key or column_keys or metadata or self.kms is None):
            raise ValueError("key ids are of a kms, which takes no keys and no key metadata")
        if self.data_key_bits // 8 not in KEY_LENGTHS or self.data_key_bits % 8:
            raise ValueError(f"data_key_bits is 128, 192 or 256, not {self.data_key_bits}")
        check_aad_prefix(self.aad_prefix)
        found: dict[Path, CountedCipher | str] = {
            column_path(name): self._cipher(key, f"the key of column {name!r}", prior_invocations)
            for name, key in (column_keys or {}).items()
        }
        found |= {column_path(name): id for name, id in (self.column_key_ids or {}).items()}
        labels = {
            column_path(name): _bytes(value)
            for name, value in (self.column_key_metadata or {}).items()
        }
        if not set(labels) <= set(found):
            raise ValueError("column_key_metadata of a column without a key")
        plaintext = frozenset(map(column_path, self.plaintext_columns))
        if plaintext & set(found):
            raise ValueError("a column cannot have a key and be left in the clear")
        self._columns.update(found)
        self._metadata.update(labels)
        set_ = object.__setattr__
        set_(self, "_plaintext", plaintext)
        set_(self, "internal_key_material", self.internal_key_material or not wrapped)
        if footer_key is not None:
            set_(self, "_footer", self._cipher(footer_key, "the footer key", prior_invocations))

    def _cipher(self, key: object, name: str, invocations: int) -> CountedCipher:
        made = CountedCipher(check_key(key, name), invocations)
        # A key that is used twice is counted once.
        return self._ciphers.setdefault(made.reveal(), made)

    def __repr__(self) -> str:
        footer = f"footer_key_id={self.footer_key_id!r}" if self._footer is None else ""
        parts = [footer or f"footer_key={self._footer!r}"]
        if self._columns:
            parts.append(f"column keys of {', '.join(map(column_name, self._columns))}")
        return f"Encryption({', '.join(parts)}, {self.algorithm})"

    def __reduce__(self) -> tuple[object, ...]:
        given = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name[0] != "_"
        }
        footer = None if self._footer is None else self._footer.reveal()
        given |= {"footer_key": footer, "column_keys": self._own_keys() or None}
        return _from_arguments, ({**given, "prior_invocations": self.invocations},)

    def replaced(self, **arguments: object) -> Encryption:
        """The same with other arguments. Its keys continue counting from here, each for itself."""
        given = self.__reduce__()[1]
        assert isinstance(given, tuple)
        return _from_arguments({**given[0], **arguments})

    def _own_keys(self) -> dict[str, bytes]:
        return {
            column_name(path): key.reveal()
            for path, key in self._columns.items()
            if isinstance(key, CountedCipher)
        }

    def decryption(self) -> Decryption:
        """The keys that open the files that are encrypted so; it also opens plaintext files."""
        return Decryption(
            footer_key=None if self._footer is None else self._footer.reveal(),
            column_keys=self._own_keys(),
            kms=self.kms,
            aad_prefix=self.aad_prefix,
            allow_plaintext_files=True,
        )

    @property
    def invocations(self) -> int:
        """Modules that the most used key has encrypted; keys that a KMS wraps start at 0."""
        return max((each.invocations for each in self._ciphers.values()), default=0)

    def prefix_for(self, file: str) -> bytes | None:
        """The AAD prefix of a file."""
        prefix = self.aad_prefix(file) if callable(self.aad_prefix) else self.aad_prefix
        if prefix is not None and not prefix:
            raise ValueError("an AAD prefix is not empty")
        return prefix

    def key_of_footer(self) -> CountedCipher | None:
        """The footer key, where it is given directly."""
        return self._footer

    def key_of_column(self, path: Path) -> tuple[Path, CountedCipher | str] | None:
        """The own key of a leaf, or the id of its master key, and for what it was given."""
        for length in range(len(path), 0, -1):
            key = self._columns.get(path[:length])
            if key is not None:
                return path[:length], key
        return None

    def metadata_of_footer(self) -> bytes | None:
        """The key metadata that goes with the footer key."""
        return _bytes(self.footer_key_metadata)

    def metadata_of_column(self, given: Path) -> bytes | None:
        """The key metadata that goes with the key of ``given``."""
        return self._metadata.get(given)

    def is_plaintext(self, path: Path) -> bool:
        """Whether a leaf stays plaintext: the nearest name around it decides."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._plaintext:
                return True
            if path[:length] in self._columns:
                return False
        return not self.encrypt_others

    def check_columns(self, leaves: Iterable[Path]) -> None:
        """``SkipstoneError`` where a name is of no column: the column it meant would stay
        plaintext, or take another key."""
        known = {leaf[:length] for leaf in leaves for length in range(1, len(leaf) + 1)}
        for path in (*self._columns, *self._plaintext):
            if path not in known:
                names = sorted(map(column_name, known))
                near = get_close_matches(column_name(path), names, n=1)
                raise SkipstoneError(
                    f"there is no column {column_name(path)!r} to encrypt or to leave alone",
                    hint=f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}",
                )


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _from_arguments(arguments: dict[str, object]) -> Encryption:
    return Encryption(**arguments)  # type: ignore[arg-type]
