"""A forked child keeps no port of its parent's: nobody there would serve it, and the parent could not open it
again as long as the child lives."""

import os
import socket
import weakref
from typing import Final

_of_the_parent: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()


def not_in_children(bound: socket.socket) -> socket.socket:
    """The same socket, which a child that is forked closes at once; the parent's stays as it is.

    Only for sockets without a connection: closing says nothing to anybody.
    """
    _of_the_parent.add(bound)
    return bound


def _forked() -> None:
    for inherited in list(_of_the_parent):
        inherited.close()


os.register_at_fork(after_in_child=_forked)
