"""Who speaks first on a control channel, and who hears nothing at all."""

from mltswitch.hostagent.transport.exchange import Exchange
from mltswitch.hostagent.transport.messages import Goodbye, Hello, encode_message


class Greeting:
    """Our HELLO goes before everything else, and to a caller not before that one is welcome.

    Until then a caller is at most told why it is refused, and not even that where it has begun as neither an
    agent nor a doctor does.
    """

    def __init__(self, exchange: Exchange, hello: Hello) -> None:
        self._exchange = exchange
        self._hello: Hello | None = hello
        """Ours; None once it is said."""
        self.is_quiet = False
        """Whoever was called decides whether the caller is answered."""
        self.is_known = False
        """Whether the other end has begun with a HELLO, right or wrong, or as our doctor does."""

    @property
    def is_addressed(self) -> bool:
        """Whether the other end is told why it is left."""
        return self.is_known or not self.is_quiet

    def goodbye(self, text: str) -> None:
        """The last word, and the only one where nothing has been said yet."""
        if self.is_quiet:
            self._exchange.take_unsaid()
        if self.is_addressed:
            self._exchange.say(Goodbye(text))

    def take_unsaid(self, *, is_over: bool) -> bytes:
        """What waits for the control channel. Raises PeerUnreachableError where a caller that is not welcome
        yet makes us keep too much."""
        if self.is_quiet:
            if is_over:
                return self._exchange.take_unsaid()
            self._exchange.check_unsaid()
            return b""
        hello, self._hello = self._hello, None
        return (encode_message(hello) if hello else b"") + self._exchange.take_unsaid()
