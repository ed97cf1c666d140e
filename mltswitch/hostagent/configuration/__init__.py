"""An agent's configuration file: what a plan does not say, or all of it where there is no plan."""

from mltswitch.hostagent.configuration.build import AgentConfiguration, configured, load_configuration
from mltswitch.hostagent.configuration.document import AgentDocument
from mltswitch.hostagent.configuration.places import parse_endpoint
from mltswitch.hostagent.configuration.reading import checked_document, read_document

__all__ = [
    "AgentConfiguration",
    "AgentDocument",
    "checked_document",
    "configured",
    "load_configuration",
    "parse_endpoint",
    "read_document",
]
