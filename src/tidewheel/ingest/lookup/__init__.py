"""Looking things up outside the stream: asking, with all the care that a service needs, and writing down what became of
it, for the jobs that read it (`Stream.lookup`)."""

from tidewheel.ingest.lookup.limits import Limits
from tidewheel.ingest.lookup.provider import Provider, ProviderError
from tidewheel.ingest.lookup.worker import LookupWorker, Report

__all__ = ["LookupWorker", "Limits", "Provider", "ProviderError", "Report"]
