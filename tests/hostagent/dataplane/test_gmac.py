"""The compiled GMAC agrees with another implementation of AES-GCM, whatever the processor's instructions."""

import ctypes
import itertools
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

import mltswitch.hostagent

SOURCE = Path(mltswitch.hostagent.__file__).parent / "dataplane" / "gmac.c"
FLAGS = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
IMPLEMENTATIONS = {"fastest": 0, "portable": 1, "not AVX-512": 2}  # what gmac_force_portable takes
GMAC_BYTES = 704  # struct gmac: 32 powers and 11 round keys, in steps of 64 bytes
GUARD = 64

Tag = Callable[[bytes, bytes, Sequence[bytes]], bytes]


class Part(ctypes.Structure):
    """A struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("needs a C compiler")
    built = tmp_path_factory.mktemp("gmac") / "gmac.so"
    subprocess.run([compiler, *FLAGS, "-o", built, SOURCE], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.gmac_implementation.restype = ctypes.c_char_p
    loaded.gmac_init.restype = loaded.gmac_tag.restype = None
    return loaded


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def tag(request: pytest.FixtureRequest, library: ctypes.CDLL) -> Iterator[Tag]:
    """Computes a tag; each part lies at an address of its own, aligned to nothing."""

    def compute(key: bytes, nonce: bytes, parts: Sequence[bytes]) -> bytes:
        memory = ctypes.create_string_buffer(GMAC_BYTES + 64)
        gmac = ctypes.c_void_p(-ctypes.addressof(memory) % 64 + ctypes.addressof(memory))
        library.gmac_init(gmac, key)
        held, table = [], (Part * len(parts))()
        for place, part in enumerate(parts):
            buffer = ctypes.create_string_buffer(len(part) + GUARD)
            start = (place * 7 + len(part) * 3 + 1) % GUARD
            ctypes.memmove(ctypes.addressof(buffer) + start, part, len(part))
            held.append(buffer)
            table[place] = Part(ctypes.addressof(buffer) + start if part else None, len(part))
        result = ctypes.create_string_buffer(b"\xa5" * 17, 17)
        library.gmac_tag(gmac, nonce, table, len(parts), result)
        assert result.raw[16] == 0xA5
        return result.raw[:16]

    before = library.gmac_force_portable(IMPLEMENTATIONS[request.param])
    yield compute
    library.gmac_force_portable(before)


def reference(key: bytes, nonce: bytes, message: bytes) -> bytes:
    return AESGCM(key).encrypt(nonce, b"", message)


def cut(message: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(message)]
    return [message[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize(
    ("key", "nonce", "message", "expected"),
    [
        # The first test case of the GCM specification: neither text nor additional data.
        ("00" * 16, "00" * 12, "", "58e2fccefa7e3061367f1d57a4e7455a"),
        # NIST's validation vectors (gcmEncryptExtIV128): the first of 0 bits and the first of 128 bits.
        (
            "11754cd72aec309bf52f7687212e8957",
            "3c819d9a9bed087615030b65",
            "",
            "250327c674aaf477aef2675748cf6971",
        ),
        (
            "77be63708971c4e240d1cb79e8d77feb",
            "e0e00f19fed7ba0136a797f3",
            "7a43ec1d9c0a5a78a0b16533a6213cab",
            "209fcc8d3675ed938e9c7166709dd946",
        ),
    ],
)
def test_published_vectors(tag: Tag, key: str, nonce: str, message: str, expected: str) -> None:
    computed = tag(bytes.fromhex(key), bytes.fromhex(nonce), [bytes.fromhex(message)])
    assert computed.hex() == expected


def test_every_length_up_to_a_few_groups_of_blocks(tag: Tag) -> None:
    source = random.Random(1)  # noqa: S311  (no secret)
    key, nonce, message = source.randbytes(16), source.randbytes(12), source.randbytes(1100)
    for length in range(len(message)):
        expected = reference(key, nonce, message[:length])
        assert tag(key, nonce, [message[:length]]) == expected
        assert tag(key, nonce, [message[: length % 41], message[length % 41 : length]]) == expected


@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x01", b"\x80"])
def test_extreme_bits(tag: Tag, fill: bytes) -> None:
    for length in (16, 496, 512, 528, 9000):
        assert tag(fill * 16, fill * 12, [fill * length]) == reference(fill * 16, fill * 12, fill * length)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**64),
    length=st.integers(0, 5000),
    places=st.lists(st.integers(0, 5000), max_size=12),
)
def test_random_messages_in_random_parts(tag: Tag, seed: int, length: int, places: list[int]) -> None:
    source = random.Random(seed)  # noqa: S311  (no secret)
    key, nonce, message = source.randbytes(16), source.randbytes(12), source.randbytes(length)
    parts = cut(message, [place % (length + 1) for place in places])
    assert tag(key, nonce, parts) == reference(key, nonce, message)


def test_a_message_of_no_parts_and_one_of_single_bytes(tag: Tag) -> None:
    key, nonce, message = bytes(range(16)), bytes(range(12)), bytes(range(200))
    assert tag(key, nonce, []) == reference(key, nonce, b"")
    assert tag(key, nonce, [bytes([byte]) for byte in message]) == reference(key, nonce, message)


def test_equal_sees_each_bit(library: ctypes.CDLL) -> None:
    one = bytes(range(16))
    assert library.gmac_equal(one, bytes(one)) == 1
    for bit in range(128):
        other = (int.from_bytes(one) ^ 1 << bit).to_bytes(16)
        assert library.gmac_equal(one, other) == 0


def test_the_implementation_in_use_is_named(library: ctypes.CDLL) -> None:
    before = library.gmac_force_portable(1)
    assert library.gmac_implementation() == b"portable"
    assert library.gmac_force_portable(2) == 1
    assert b"AVX-512" not in library.gmac_implementation()
    library.gmac_force_portable(before)
