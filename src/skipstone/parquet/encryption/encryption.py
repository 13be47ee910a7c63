"""Keys and choices for writing: what a user passes to encrypt files.

Keys are given directly, with metadata that tells readers which key it is, or a KMS wraps a random
data key per file and column (``material``). Nothing is left in the clear that was not named: a
column without a key of its own is encrypted with the footer key.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from skipstone.errors import SkipstoneError
from skipstone.predicate.types import column_name, column_path

from .ciphers import KEY_LENGTHS, CountedCipher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .decryption import Decryption
    from .key_material import KmsClient

__all__ = ["Algorithm", "Encryption"]

Algorithm: TypeAlias = Literal["AES_GCM_V1", "AES_GCM_CTR_V1"]
_ALGORITHMS: Final = get_args(Algorithm)
Path: TypeAlias = tuple[str, ...]


class Encryption:
    """How to encrypt files. Keys are 16, 24 or 32 bytes.

    With keys of your own: ``footer_key``, and ``column_keys`` by dotted column path (a group stands
    for the columns in it). ``footer_key_metadata`` and ``column_key_metadata`` are stored in the
    clear, for readers who look keys up by them: labels, never keys.

    With a ``kms``: ``footer_key_id`` and ``column_key_ids`` name its master keys, and every file
    gets random data keys of ``data_key_bits``, wrapped as the key tools of parquet-java do:
    ``double_wrapping`` puts a key of ours between; without ``internal_key_material`` the wrapped
    keys lie in a file beside the data file, where they can be wrapped anew without touching it.

    ``algorithm``: ``AES_GCM_V1``, or ``AES_GCM_CTR_V1``, which does not notice altered pages.
    ``plaintext_footer``: schema and sizes can be read without a key, and are signed.
    ``plaintext_columns`` stay in the clear; with ``encrypt_others=False`` so does every column
    without a key of its own. ``aad_prefix`` names the file (bytes, or a function from its path),
    and is kept out of it with ``store_aad_prefix=False``: readers must then give it.

    A key may encrypt 2^32 modules. Those of all files that are encrypted with one such object
    count together, after the ``prior_invocations`` that each of its keys has behind it.

    A repr names columns and sizes, never a key. It pickles, with its keys: mind where it goes; a
    copy counts for itself.
    """

    __slots__ = (
        "_arguments",
        "_ciphers",
        "_columns",
        "_footer",
        "_metadata",
        "_plaintext",
        "aad_prefix",
        "algorithm",
        "data_key_bits",
        "double_wrapping",
        "encrypt_others",
        "footer_key_id",
        "footer_key_metadata",
        "internal_key_material",
        "kms",
        "kms_instance_id",
        "kms_instance_url",
        "plaintext_footer",
        "store_aad_prefix",
    )

    def __init__(
        self,
        *,
        footer_key: bytes | None = None,
        column_keys: Mapping[str, bytes] | None = None,
        footer_key_metadata: bytes | str | None = None,
        column_key_metadata: Mapping[str, bytes | str] | None = None,
        kms: KmsClient | None = None,
        footer_key_id: str | None = None,
        column_key_ids: Mapping[str, str] | None = None,
        data_key_bits: int = 128,
        double_wrapping: bool = True,
        internal_key_material: bool = True,
        kms_instance_id: str | None = None,
        kms_instance_url: str | None = None,
        algorithm: Algorithm = "AES_GCM_V1",
        plaintext_footer: bool = False,
        plaintext_columns: Sequence[str] = (),
        encrypt_others: bool = True,
        aad_prefix: bytes | Callable[[str], bytes] | None = None,
        store_aad_prefix: bool = True,
        prior_invocations: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        if algorithm not in _ALGORITHMS:
            raise ValueError(f"the algorithm is one of {', '.join(_ALGORITHMS)}, not {algorithm!r}")
        if (footer_key is None) == (footer_key_id is None):
            raise ValueError("either footer_key or footer_key_id is needed")
        direct = bool(footer_key or column_keys or footer_key_metadata or column_key_metadata)
        wrapped = bool(footer_key_id or column_key_ids)
        if wrapped and (direct or kms is None):
            raise ValueError("key ids are of a kms, which takes no keys and no key metadata")
        if data_key_bits // 8 not in KEY_LENGTHS or data_key_bits % 8:
            raise ValueError(f"data_key_bits is 128, 192 or 256, not {data_key_bits}")
        if (
            aad_prefix is not None
            and not isinstance(aad_prefix, bytes)
            and not callable(aad_prefix)
        ):
            raise TypeError(f"aad_prefix is bytes or a function, not {type(aad_prefix).__name__}")
        self._ciphers: dict[bytes, CountedCipher] = {}
        self._footer = (
            None
            if footer_key is None
            else self._cipher(footer_key, "the footer key", prior_invocations)
        )
        self._columns: dict[Path, CountedCipher | str] = {
            column_path(name): self._cipher(key, f"the key of column {name!r}", prior_invocations)
            for name, key in (column_keys or {}).items()
        }
        self._columns |= {column_path(name): id for name, id in (column_key_ids or {}).items()}
        self._metadata = {
            column_path(name): _bytes(value) for name, value in (column_key_metadata or {}).items()
        }
        if not set(self._metadata) <= set(self._columns):
            raise ValueError("column_key_metadata of a column without a key")
        self._plaintext = frozenset(map(column_path, plaintext_columns))
        if self._plaintext & set(self._columns):
            raise ValueError("a column cannot have a key and be left in the clear")
        self.footer_key_metadata = _bytes(footer_key_metadata)
        self.kms, self.footer_key_id = kms, footer_key_id
        self.data_key_bits, self.double_wrapping = data_key_bits, double_wrapping
        self.internal_key_material = internal_key_material or not wrapped
        self.kms_instance_id, self.kms_instance_url = kms_instance_id, kms_instance_url
        self.algorithm, self.plaintext_footer = algorithm, plaintext_footer
        self.encrypt_others = encrypt_others
        self.aad_prefix, self.store_aad_prefix = aad_prefix, store_aad_prefix
        self._arguments = {
            name: value
            for name, value in given.items()
            if name not in ("footer_key", "column_keys", "prior_invocations")
        }

    def _cipher(self, key: object, name: str, invocations: int) -> CountedCipher:
        if not isinstance(key, bytes | bytearray | memoryview):
            raise TypeError(f"{name} is bytes, not {type(key).__name__}")
        key = bytes(key)
        if len(key) not in KEY_LENGTHS:
            raise ValueError(f"{name} has {len(key)} bytes: an AES key has 16, 24 or 32")
        # A key that is used twice is counted once.
        return self._ciphers.setdefault(key, CountedCipher(key, invocations))

    def __repr__(self) -> str:
        footer = f"footer_key_id={self.footer_key_id!r}" if self._footer is None else ""
        parts = [footer or f"footer_key={self._footer!r}"]
        if self._columns:
            parts.append(f"column keys of {', '.join(map(column_name, self._columns))}")
        return f"Encryption({', '.join(parts)}, {self.algorithm})"

    def __reduce__(self) -> tuple[object, ...]:
        keys = {
            column_name(path): key.reveal()
            for path, key in self._columns.items()
            if isinstance(key, CountedCipher)
        }
        footer = None if self._footer is None else self._footer.reveal()
        prior = max((each.invocations for each in self._ciphers.values()), default=0)
        return _again, (
            {
                **self._arguments,
                "footer_key": footer,
                "column_keys": keys or None,
                "prior_invocations": prior,
            },
        )

    def replaced(self, **arguments: object) -> Encryption:
        """The same with other arguments. Its keys go on counting from here, each for itself."""
        given = self.__reduce__()[1]
        assert isinstance(given, tuple)
        return _again({**given[0], **arguments})

    def decryption(self) -> Decryption:
        """What opens the files that are encrypted so; it also opens those that are not at all."""
        from .decryption import Decryption as _Decryption

        footer = self._footer
        return _Decryption(
            footer_key=None if footer is None else footer.reveal(),
            column_keys={
                column_name(path): key.reveal()
                for path, key in self._columns.items()
                if isinstance(key, CountedCipher)
            },
            kms=self.kms,
            aad_prefix=self.aad_prefix,
            allow_plaintext_files=True,
        )

    @property
    def invocations(self) -> int:
        """What the key that was used most has encrypted; keys that a KMS wraps begin anew."""
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

    def metadata_of_column(self, given: Path) -> bytes | None:
        """The key metadata that goes with the key of ``given``."""
        return self._metadata.get(given)

    def is_plaintext(self, path: Path) -> bool:
        """Whether a leaf stays in the clear."""
        named = any(path[:length] in self._plaintext for length in range(1, len(path) + 1))
        if named and self.key_of_column(path) is not None:
            nearest = self.key_of_column(path)
            within = max(
                length for length in range(1, len(path) + 1) if path[:length] in self._plaintext
            )
            return nearest is None or within > len(nearest[0])
        return named or (not self.encrypt_others and self.key_of_column(path) is None)

    def check_columns(self, leaves: Iterable[Path]) -> None:
        """``SkipstoneError`` where a name is of no column: what it meant would stay in the clear,
        or take another key."""
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


def _again(arguments: dict[str, object]) -> Encryption:
    return Encryption(**arguments)  # type: ignore[arg-type]
