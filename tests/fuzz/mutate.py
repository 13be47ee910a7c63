"""Damage to the bytes of a file, of the kinds that storage, transfers and enemies do.

Each mutation is drawn from a generator with a seed of its own, so that any one can be made again:
``mutated(data, seed)``. Half of them aim at the last part of the file (footer, indexes), where one
byte decides most; the rest fall anywhere.
"""

from __future__ import annotations

import random

# Bytes that mean much to varints, sizes, magics and Thrift types.
_LOADED = (0x00, 0x01, 0x0F, 0x1C, 0x7F, 0x80, 0xFE, 0xFF)
_INTEGERS = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 20, 1 << 30)


def mutated(data: bytes, seed: int) -> bytes:
    """``data`` with one to four damages; for one ``data`` and ``seed`` always the same."""
    chance = random.Random(seed)
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if out:
            _damage(out, chance)
    return bytes(out)


def _damage(out: bytearray, chance: random.Random) -> None:
    size = len(out)
    # A file that keeps its magic and footer length gets further into the reader.
    last = max(1, size - 8) if chance.random() < 0.9 else size
    at = chance.randrange(max(0, last - max(1, size // 4)), last) if chance.random() < 0.5 else 0
    at = at or chance.randrange(last)
    match chance.randrange(9):
        case 0 | 1 | 2:
            out[at] ^= 1 << chance.randrange(8)
        case 3 | 4:
            out[at] = chance.choice(_LOADED)
        case 5:
            length = min(chance.choice((1, 4, 8, 64)), size - at)
            out[at : at + length] = bytes(chance.randrange(256) for _ in range(length))
        case 6:
            out[at : at + 4] = chance.choice(_INTEGERS).to_bytes(4, "little")
        case 7:
            # What lies behind moves: every offset is wrong from here on.
            if chance.random() < 0.5:
                del out[at : at + chance.choice((1, 2, 16))]
            else:
                out[at:at] = bytes(chance.choice((1, 2, 16)))
        case _:
            if chance.random() < 0.3:
                del out[at:]
            else:
                source = chance.randrange(size)
                piece = bytes(out[source : source + chance.choice((4, 16, 256))])
                out[at : at + len(piece)] = piece
