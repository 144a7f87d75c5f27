"""Web server of the demo and of the phone benchmark.

:mod:`exporter.server.serving` serves, and needs the ``web`` extra; reading what devices
sent needs nothing but the standard library and the records.
"""

from __future__ import annotations

from exporter.server.results import RESULTS_NAME, read_results

__all__ = ["RESULTS_NAME", "read_results"]
