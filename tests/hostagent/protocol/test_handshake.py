"""What two agents agree on. No sockets."""

import pytest

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerBusyError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.protocol.frames import Frame, Goodbye, TransportFrame
from mltswitch.hostagent.protocol.handshake import (
    CrossedCallError,
    checked_hello,
    goodbye_for,
    hello,
    refused,
)

OURS = hello("worker", {})


def test_a_hello_of_ours_is_welcome_everywhere_else() -> None:
    for certified in (None, "worker"):
        for expected in ("", "worker"):
            assert checked_hello(OURS, own_name="server", certified=certified, expected=expected) is OURS


@pytest.mark.parametrize(
    ("frame", "certified", "expected", "kind", "message"),
    [
        (OURS, "other", "", PeerRefusedError, "it calls itself worker, and its certificate is other's"),
        (OURS, None, "other", PeerRefusedError, "who answers there is worker"),
        (hello("server", {}), None, "", PeerRefusedError, "it has our own name"),
        (hello("no host", {}), None, "", PeerRefusedError, "its name is not a host name"),
        (hello("10.0.0.1", {}), None, "", PeerRefusedError, "its name is an address"),
        (
            OURS.model_copy(update={"versions": (1,)}),
            None,
            "",
            PeerRefusedError,
            "versions 1 of .* we speak 2",
        ),
        (None, None, "", ProtocolViolationError, "no HELLO"),
        (TransportFrame(channel="default", body={}), None, "", ProtocolViolationError, "no HELLO"),
        (Goodbye(code="busy", reason="full"), None, "other", PeerBusyError, "refuses: full"),
        (Goodbye(code="crossed", reason="ours"), None, "other", CrossedCallError, "ours"),
    ],
)
def test_who_is_not_welcome(
    frame: Frame | None, certified: str | None, expected: str, kind: type[AgentError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        checked_hello(frame, own_name="server", certified=certified, expected=expected)


@pytest.mark.parametrize(
    ("error", "code", "becomes"),
    [
        (CrossedCallError("x"), "crossed", CrossedCallError),
        (PeerBusyError("x"), "busy", PeerBusyError),
        (PeerRefusedError("x"), "refused", PeerRefusedError),
        (ProtocolViolationError("x"), "protocol", PeerRefusedError),
        (CancelledError("x"), "left", PeerRefusedError),
        (DeadlineExceededError("x"), "left", PeerRefusedError),
        (PeerUnreachableError("x"), "left", PeerRefusedError),
    ],
)
def test_an_error_reaches_the_other_end(error: AgentError, code: str, becomes: type[AgentError]) -> None:
    said = goodbye_for(error)
    assert (said.code, said.reason) == (code, "x")
    heard = refused(said, "peer")
    assert type(heard) is becomes
    assert heard.peer == "peer"
