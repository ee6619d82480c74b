"""Lookups outside the stream: query a service with retries and limits, and write the outcomes to the log for the jobs
that read them (`Stream.lookup`)."""

from tidewheel.ingest.lookup.limits import Limits
from tidewheel.ingest.lookup.provider import Provider, ProviderError
from tidewheel.ingest.lookup.worker import LookupWorker, Report

__all__ = ["LookupWorker", "Limits", "Provider", "ProviderError", "Report"]
