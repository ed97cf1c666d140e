"""Other people's flows: their sizes, their load, and that they end with their input."""

import json
import socket
import subprocess
import sys
import time

import pytest

from mltswitch.training.bench.rivals import MEAN_BYTES, PACKET_BYTES, PORT, SIZES, size_bytes

COMMAND = [sys.executable, "-m", "mltswitch.training.bench.rivals"]


def test_sizes_are_those_of_a_web_search() -> None:
    for packets, share in SIZES:
        assert size_bytes(share) == pytest.approx(packets * PACKET_BYTES)
    count = 100_000
    assert sum(size_bytes((each + 0.5) / count) for each in range(count)) / count == pytest.approx(
        MEAN_BYTES, rel=1e-3
    )
    assert 1.5e6 < MEAN_BYTES < 1.8e6, "the 1.6 MB that is said of it"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_load_is_what_was_asked_for_until_the_input_ends(seed: int) -> None:
    load_bps, divisor, seconds = 8e6, 1000, 3.0
    with socket.create_server(("127.0.0.9", PORT), backlog=256) as server:
        server.settimeout(0.2)
        words = ["127.0.0.8", str(load_bps), str(divisor), str(seed), "127.0.0.9"]
        with subprocess.Popen([*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert json.loads(process.stdout.readline()) == {}
            with pytest.raises(TimeoutError):
                server.accept()
            process.stdin.write(b"go\n")
            process.stdin.flush()
            flows, count, started = 0, 0, time.monotonic()
            while time.monotonic() < started + seconds:
                connection, (source, _) = server.accept()
                assert source == "127.0.0.8"
                with connection:
                    flows += 1
                    while more := connection.recv(1 << 16):
                        count += len(more)
            process.stdin.write(b"how many\n")
            process.stdin.flush()
            counts = json.loads(process.stdout.readline())
            assert counts["flows"] >= flows
            assert counts["failed"] == 0
            process.stdin.close()
            assert process.wait(10) == 0
    expected = load_bps / 8 * seconds / (MEAN_BYTES / divisor)
    assert 0.7 * expected < flows < 1.3 * expected
    assert 0.5 * load_bps / 8 * seconds < count < 1.7 * load_bps / 8 * seconds
