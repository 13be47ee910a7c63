"""The Java-serialised Bloom filter of an Xskipper store (``BloomFilterMetaData``).

One blob is one Java object stream::

    AC ED 00 05                                       magic, version
    73 <class desc>                                   a BloomFilterMetaData, flags 02 ...
       73 <class desc>                                ... whose one field is a BloomFilterImpl,
          (7A <int32 n> | 77 <int8 n>) <n bytes> ...  flags 03: Spark's sketch bytes as block data,
          78                                          in blocks of 1024; the last may be shorter,
                                                      with the 77 header if of at most 255 bytes

    class desc = 72 <utf name> <int64 SUID> <flags> <int16 field count> <fields> 78 <super>
    field      = <type code> <utf name> [L and [: 74 <utf signature> | 71 <handle>]
    super      = 70 | class desc          utf = <int16 length> <modified UTF-8>

A bare filter (no ``BloomFilterMetaData`` around it) is the inner object alone. Handles count from
``7E0000`` over class descriptors, signatures and objects, in the order of the stream.

Class names and serial version ids (SUID) differ between releases::

    io.xskipper.index.metadata.BloomFilterMetaData              1    versions 3 and 4
    com.ibm.metaindex.metadata.index.types.BloomFilterMetaData  1    versions 1 and 2
    ....MetadataType            603f5d1b7b764446 (Scala 2.12), 25e4f553292c5e68 (2.13);
                                f7b012bf742b86a4 (com.ibm)
    ....BloomFilterImpl         8303774076ceabf6 (Spark 3.0.1), 394d74921a9bcc14 (4.0),
                                d88d4912900f20c4 (4.1 on: no fields)
    ....BloomFilterImplV2       9665f737aff358ed (4.1 on: no fields)

Any SUID is read: releases from 1.3 on do so too. The descriptors of Spark 3.0.1 are written, so
that older releases can read what Skipstone writes; a version 2 payload gets the only class that can
hold it.

Source: the Java Object Serialization Specification, section 6.4; blobs of several releases.
"""

from __future__ import annotations

import struct
from dataclasses import field

from skipstone._dataclasses import dataclass
from skipstone.errors import FormatError

from .sketch import SketchFilter

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS_DESC, _OBJECT, _STRING = 0x70, 0x71, 0x72, 0x73, 0x74
_BLOCK_SHORT, _END, _BLOCK_LONG = 0x77, 0x78, 0x7A
_BASE_HANDLE = 0x7E0000
_WRITE_METHOD, _SERIALIZABLE = 0x01, 0x02
BLOCK = 1024
# Real descriptors are one or two classes of at most two fields.
_MAX_DEPTH, _MAX_FIELDS = 8, 64
_IMPLS = {
    "org.apache.spark.util.sketch.BloomFilterImpl": 1,
    "org.apache.spark.util.sketch.BloomFilterImplV2": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaField:
    """One declared field; ``signature`` only of objects (``L``) and arrays (``[``)."""

    code: str
    name: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaClass:
    """A class descriptor. ``suid`` is Java's long, ``flags`` its SC_ bits."""

    name: str
    suid: int
    flags: int
    fields: tuple[JavaField, ...] = ()
    superclass: JavaClass | None = None


METADATA = JavaClass(
    name="io.xskipper.index.metadata.BloomFilterMetaData",
    suid=1,
    flags=_SERIALIZABLE,
    fields=(
        JavaField(
            code="L", name="bloomFilter", signature="Lorg/apache/spark/util/sketch/BloomFilter;"
        ),
    ),
    superclass=JavaClass(
        name="io.xskipper.index.metadata.MetadataType",
        suid=0x603F5D1B7B764446,
        flags=_SERIALIZABLE,
    ),
)

_IMPL_V1 = JavaClass(
    name="org.apache.spark.util.sketch.BloomFilterImpl",
    suid=0x8303774076CEABF6 - (1 << 64),
    flags=_WRITE_METHOD | _SERIALIZABLE,
    fields=(
        JavaField(code="I", name="numHashFunctions"),
        JavaField(code="L", name="bits", signature="Lorg/apache/spark/util/sketch/BitArray;"),
    ),
)
_IMPL_V2 = JavaClass(
    name="org.apache.spark.util.sketch.BloomFilterImplV2",
    suid=0x9665F737AFF358ED - (1 << 64),
    flags=_WRITE_METHOD | _SERIALIZABLE,
)


def impl_class(version: int) -> JavaClass:
    """The class that is written around a payload of this version."""
    return _IMPL_V1 if version == 1 else _IMPL_V2


class _JavaStream:
    """A cursor over one stream that checks before it takes."""

    __slots__ = ("at", "data", "file", "handles", "offset")

    def __init__(self, data: memoryview, file: str | None, offset: int) -> None:
        self.data, self.file, self.offset, self.at = data, file, offset, 0
        self.handles: list[object] = []

    def fail(self, what: str, expected: object, got: object) -> FormatError:
        return FormatError(
            f"Java stream: {what}",
            file=self.file,
            offset=self.offset + self.at,
            expected=expected,
            got=got,
        )

    def take(self, count: int) -> memoryview:
        if count < 0 or count > len(self.data) - self.at:
            raise self.fail("ends early", f"{count} bytes", len(self.data) - self.at)
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def byte(self) -> int:
        return self.take(1)[0]

    def expect(self, code: int, what: str) -> None:
        if (got := self.byte()) != code:
            self.at -= 1
            raise self.fail(what, f"{code:02X}", f"{got:02X}")

    def utf(self) -> str:
        (count,) = struct.unpack(">H", self.take(2))
        text = bytes(self.take(count))
        # Modified UTF-8 differs only beyond ASCII, and all names here are ASCII.
        if not text.isascii():
            raise self.fail("a name", "ASCII", repr(text[:40]))
        return text.decode("ascii")

    def class_desc(self, depth: int = 0) -> JavaClass:
        self.expect(_CLASS_DESC, "class descriptor")
        if depth > _MAX_DEPTH:
            raise self.fail("superclasses", f"at most {_MAX_DEPTH}", "more")
        name = self.utf()
        suid, flags, count = struct.unpack(">qBH", self.take(11))
        # The descriptor's handle comes before those of its signatures.
        self.handles.append(None)
        if count > _MAX_FIELDS:
            raise self.fail("fields of a class", f"at most {_MAX_FIELDS}", count)
        fields = tuple(self.field() for _ in range(count))
        self.expect(_END, "end of class annotations")
        superclass = None
        if self.data[self.at : self.at + 1].tobytes() == b"\x70":
            self.at += 1
        else:
            superclass = self.class_desc(depth + 1)
        return JavaClass(name=name, suid=suid, flags=flags, fields=fields, superclass=superclass)

    def field(self) -> JavaField:
        code, name = chr(self.byte()), self.utf()
        if code in "BCDFIJSZ":
            return JavaField(code=code, name=name)
        if code not in "L[":
            raise self.fail("type code of a field", "BCDFIJSZL[", repr(code))
        if (kind := self.byte()) == _STRING:
            signature: object = self.utf()
            self.handles.append(signature)
        elif kind == _REFERENCE:
            (handle,) = struct.unpack(">i", self.take(4))
            known = 0 <= handle - _BASE_HANDLE < len(self.handles)
            signature = self.handles[handle - _BASE_HANDLE] if known else None
        else:
            raise self.fail("signature of a field", "74 or 71", f"{kind:02X}")
        if not isinstance(signature, str):
            raise self.fail("signature of a field", "a text", "a handle of something else")
        return JavaField(code=code, name=name, signature=signature)

    def blocks(self) -> bytes:
        """The payload, up to and with the end mark, which must end the stream."""
        whole = (len(self.data) - self.at) // (BLOCK + 5)
        parts = []
        # A hostile stream of tiny blocks costs time in proportion to its length, no more.
        for _ in range(whole):
            if self.data[self.at : self.at + 5].tobytes() != b"\x7a\x00\x00\x04\x00":
                break
            self.at += 5
            parts.append(self.take(BLOCK))
        while (code := self.byte()) != _END:
            if code == _BLOCK_SHORT:
                count = self.byte()
            elif code == _BLOCK_LONG:
                (count,) = struct.unpack(">i", self.take(4))
            else:
                self.at -= 1
                raise self.fail("block data", "77, 7A or 78", f"{code:02X}")
            parts.append(self.take(count))
        if self.at != len(self.data):
            raise self.fail("bytes after the end", 0, len(self.data) - self.at)
        return b"".join(parts)


def parse_header(data: bytes | memoryview) -> tuple[JavaClass | None, JavaClass, int]:
    """``(outer, inner, length)`` of the descriptors before the payload's first block.

    ``outer`` is ``None`` for a bare filter. ``FormatError`` for any other stream.
    """
    reader = _JavaStream(memoryview(data).cast("B"), None, 0)
    outer, inner = _header(reader)
    return outer, inner, reader.at


def _header(reader: _JavaStream) -> tuple[JavaClass | None, JavaClass]:
    magic = bytes(reader.take(4))
    if magic != _MAGIC:
        raise reader.fail("magic", _MAGIC.hex(), magic.hex())
    reader.expect(_OBJECT, "object")
    outer: JavaClass | None = None
    inner = reader.class_desc()
    if inner.name not in _IMPLS:
        outer = inner
        chain: list[JavaClass] = []
        level: JavaClass | None = outer
        while level is not None:
            chain.append(level)
            level = level.superclass
        values = [entry.code for level in reversed(chain) for entry in level.fields]
        plain = all(level.flags == _SERIALIZABLE for level in chain)
        if not outer.name.endswith(".BloomFilterMetaData") or values != ["L"] or not plain:
            raise reader.fail("class", "a BloomFilterMetaData of one field", outer.name[:100])
        reader.handles.append(None)
        reader.expect(_OBJECT, "the filter")
        inner = reader.class_desc()
    above = inner.superclass
    plain = above is None or (above.flags == _SERIALIZABLE and not above.fields)
    if inner.name not in _IMPLS or inner.flags != _WRITE_METHOD | _SERIALIZABLE or not plain:
        raise reader.fail("class of the filter", "one of Spark's BloomFilterImpl", inner.name[:100])
    return outer, inner


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomFilterMetaData:
    """One blob: the classes it names, and the filter. ``outer`` is ``None`` for a bare filter."""

    filter: SketchFilter
    outer: JavaClass | None = METADATA
    inner: JavaClass = field(default=_IMPL_V1)

    @classmethod
    def of(cls, filter: SketchFilter) -> BloomFilterMetaData:
        """The blob that a version 4 store gets."""
        return cls(filter=filter, outer=METADATA, inner=impl_class(filter.version))

    @classmethod
    def from_bytes(
        cls, data: bytes | memoryview, *, file: str | None = None, offset: int = 0
    ) -> BloomFilterMetaData:
        """Parses one blob, whatever its SUIDs; ``FormatError`` for anything else."""
        reader = _JavaStream(memoryview(data).cast("B"), file, offset)
        outer, inner = _header(reader)
        start = offset + reader.at
        filter_ = SketchFilter.from_bytes(reader.blocks(), file=file, offset=start)
        if filter_.version != _IMPLS[inner.name]:
            raise FormatError(
                f"version of the filter in a {inner.name.rpartition('.')[2]}",
                file=file,
                offset=start,
                expected=_IMPLS[inner.name],
                got=filter_.version,
            )
        return cls(filter=filter_, outer=outer, inner=inner)

    def to_bytes(self) -> bytes:
        """The blob, as Java's ``ObjectOutputStream`` writes it."""
        return header(self.outer, self.inner) + block_data(self.filter.to_bytes())


def header(outer: JavaClass | None, inner: JavaClass) -> bytes:
    """The bytes before the payload's first block."""
    out = bytearray(_MAGIC)
    handles: dict[str, int] = {}
    taken = 0
    for level in (outer, inner):
        if level is not None:
            out.append(_OBJECT)
            # The object's own handle follows those of its class.
            taken = _write_class(out, level, handles, taken) + 1
    return bytes(out)


def _write_class(out: bytearray, cls: JavaClass, handles: dict[str, int], taken: int) -> int:
    """Appends a descriptor; ``handles``: signatures written so far, ``taken``: handles so far."""
    level: JavaClass | None = cls
    while level is not None:
        out += struct.pack(">BH", _CLASS_DESC, len(level.name)) + level.name.encode("ascii")
        out += struct.pack(">qBH", level.suid, level.flags, len(level.fields))
        taken += 1
        for entry in level.fields:
            out += entry.code.encode("ascii") + struct.pack(">H", len(entry.name))
            out += entry.name.encode("ascii")
            if entry.signature is None:
                continue
            if entry.signature in handles:
                out += struct.pack(">Bi", _REFERENCE, _BASE_HANDLE + handles[entry.signature])
                continue
            handles[entry.signature] = taken
            taken += 1
            out += struct.pack(">BH", _STRING, len(entry.signature))
            out += entry.signature.encode("ascii")
        out.append(_END)
        level = level.superclass
    out.append(_NULL)
    return taken


def block_data(payload: bytes) -> bytes:
    """``payload`` cut into Java's blocks of 1024 bytes, with the end mark."""
    out = bytearray()
    for at in range(0, len(payload), BLOCK):
        part = payload[at : at + BLOCK]
        short = len(part) <= 0xFF
        out += struct.pack(
            ">BB" if short else ">Bi", _BLOCK_SHORT if short else _BLOCK_LONG, len(part)
        )
        out += part
    out.append(_END)
    return bytes(out)
