"""Bytes that no correct peer sends, made of those that one does."""

from collections.abc import Callable
from random import Random

from mltswitch.hostagent.transport import messages
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey

EDGES = (0, 1, 2, 127, 128, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1)


def number(random: Random, bits: int) -> int:
    """Small, at an edge, or anything."""
    kind = random.random()
    if kind < 0.5:
        return random.randrange(4)
    if kind < 0.8:
        return random.choice(EDGES) % (1 << bits)
    return random.getrandbits(bits)


def key(random: Random) -> TransferKey:
    return TransferKey(number(random, 32), number(random, 32))


def bound(random: Random) -> float:
    return random.choice((0.0, 0.1, random.random(), 1.0, -0.5, float("nan"), float("inf"), -float("inf")))


def message(random: Random, named: TransferKey | None = None) -> messages.Message:
    """Well-formed in its fields, senseless in their values; of this transfer, or of any."""
    about = named or key(random)
    text = random.choice(("", "because", "ü" * 300, "\x1b[2J\n"))
    makers: tuple[Callable[[], messages.Message], ...] = (
        lambda: messages.Hello(random.choice((b"", b"{}", b"[]", random.randbytes(30), b"9" * 5000))),
        lambda: messages.Ready(
            about, number(random, 8), number(random, 64), bound(random), random.choice((None, bound(random)))
        ),
        lambda: messages.Probe(
            about,
            number(random, 32),
            number(random, 32),
            tuple(number(random, 16) for _ in range(random.choice((0, 1, 4, messages.MAXIMUM_MARKED_PATHS)))),
        ),
        lambda: messages.Bitmap(
            about, number(random, 32), random.randbytes(random.choice((0, 1, 2, 40, 5000)))
        ),
        lambda: messages.Stop(about, number(random, 32), number(random, 32)),
        lambda: messages.Stopped(about, number(random, 32), number(random, 32)),
        lambda: messages.Cancel(
            about, random.choice(list(Direction)), random.choice(list(messages.Reason)), text
        ),
        lambda: messages.Ping(number(random, 64)),
        lambda: messages.Pong(number(random, 64)),
        lambda: messages.Goodbye(text),
    )
    return random.choice(makers)()


def mutated(random: Random, data: bytes) -> bytes:
    """One to three changes: bits, bytes, a piece gone, doubled, or put elsewhere."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        first = random.randrange(len(changed) + 1)
        last = min(len(changed), first + random.choice((1, 1, 2, 4, 8, 100)))
        match random.randrange(6):
            case 0 if changed:
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            case 1:
                changed[first:last] = random.randbytes(last - first)
            case 2:
                del changed[first:last]
            case 3:
                changed[first:first] = changed[first:last]
            case 4:
                changed[first:last] = random.choice((b"\xff", b"\x00", b"\x80")) * (last - first)
            case _:
                changed[first:first] = random.randbytes(random.randint(1, 9))
    return bytes(changed)
