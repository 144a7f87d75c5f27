"""The archives of rated and of labelled sentences."""

from __future__ import annotations

from exporter.errors import ExportError
from exporter.packages import Source

__all__ = ["LABELLED", "RATED", "DataError"]


class DataError(ExportError):
    """Training or evaluation data is not what it should be."""


RATED = Source(
    package="vaderSentiment",
    version="3.3.2",
    registry="pip",
    archive="vaderSentiment-3.3.2.tar.gz",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
LABELLED = Source(
    package="sentiment",
    version="5.0.2",
    registry="npm",
    archive="sentiment-5.0.2.tgz",
    sha256="89302eb03d2005d03b214fe65814bb48adb7d3c42c8ca80bdee6a3ecb7e4480f",
)
