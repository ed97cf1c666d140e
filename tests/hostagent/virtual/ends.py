"""Two connections with all that they ask for, from one source of randomness."""

from random import Random

from mltswitch.hostagent.spraying.settings import Policy, SprayingSettings
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.hello import KEY_BYTES, LocalEnd, PathAddress, PeerHello, Secrets
from mltswitch.hostagent.transport.rate import RateSettings, Timely
from tests.hostagent.virtual.scenario import Pair

FIRST_PORT = 18515


def connections(pair: Pair, place: int, random: Random) -> tuple[Connection, Connection]:
    """Both ends of a pair; the place numbers its hosts."""
    return _end(pair, place, 0, random), _end(pair, place, 1, random)


def _end(pair: Pair, place: int, side: int, random: Random) -> Connection:
    settings = SprayingSettings(policy=random.choice(list(Policy)))
    seed = random.randrange(1 << 32)

    def sprayer_for(peer: PeerHello) -> PathSprayer:
        return PathSprayer(len(peer.data_addresses), settings, seed=seed)

    local = LocalEnd(
        name=f"host{2 * place + side}",
        data_addresses=tuple(
            PathAddress(path, f"10.{place}.{side}.{path + 1}", FIRST_PORT) for path in range(pair.paths)
        ),
        window_bytes=pair.window_bytes[side],
        payload_bytes=pair.payload_bytes[side],
        authenticate=pair.authenticate[side],
        control_dscp=46,
    )
    secrets = Secrets(random.getrandbits(64), random.randbytes(KEY_BYTES))
    rate = Timely(RateSettings.for_network(pair.line_bps, queue_bytes=pair.links[side][0].queue_bytes))
    return Connection(pair.settings[side], local, secrets, sprayer_for, rate, 0)
