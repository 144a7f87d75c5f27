"""``python -m exporter`` is ``albert-export``."""

from exporter.cli.main import main

main()
