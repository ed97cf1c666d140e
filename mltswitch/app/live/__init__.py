"""A live picture of a fabric: readings of its queues on a page and as metrics, beside a job's agents."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from mltswitch.app import Tell
from mltswitch.app.live.metrics import QueueCollector
from mltswitch.app.live.picture import fabric_map, state
from mltswitch.app.live.server import serve_page
from mltswitch.app.live.training import AgentWatch
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.telemetry.metrics import require_prometheus, serve_registry
from mltswitch.measure.watch import Reading
from mltswitch.plan import Plan

__all__ = ["METRICS_PORT", "PAGE_PORT", "live"]

PAGE_PORT: Final = 8484
METRICS_PORT: Final = 9101
"""TCP ports where no others are asked for."""

Show = Callable[[Reading], None]
"""Is given each reading; never waits for who looks at it."""


@contextmanager
def live(
    plan: Plan,
    *,
    page: Endpoint | None = None,
    metrics: Endpoint | None = None,
    open_metrics: bool = False,
    agents: Sequence[Path] = (),
    tell: Tell,
) -> Iterator[Show]:
    """Show readings on a page and as metrics until the context ends; `tell` hears where.

    Args:
        plan: Of the fabric that is read.
        page: Where the page is served; None: nowhere. Beyond loopback its address holds a token.
        metrics: Where Prometheus may scrape; None: nowhere.
        open_metrics: Whether that may be beyond loopback, where anybody may read.
        agents: Traces of a job's agents, or folders of them, shown on the page.
        tell: Hears the addresses.

    Raises:
        UserInputError: an agent's file is no trace, or metrics would be beyond loopback.
        MachineError: an address cannot be listened at, or prometheus_client is missing.
    """
    shows: list[Show] = []
    with ExitStack() as stack:
        if metrics is not None:
            require_prometheus("metrics")
            collector = QueueCollector(plan)
            place = stack.enter_context(
                serve_registry(collector.registry, metrics, beyond_loopback=open_metrics)
            )
            shows.append(collector.show)
            tell(f"metrics: http://{place}/metrics")
        if page is not None:
            watch = AgentWatch(agents)
            watch.check()
            served = stack.enter_context(serve_page(page, fabric_map(plan)))
            shows.append(lambda reading: served.publish(state(reading, *watch.read())))
            tell(f"page: {served.url}")

        def show(reading: Reading) -> None:
            for each in shows:
                each(reading)

        yield show
