"""The browsers that the tests drive; run as a script, says which one is missing."""

from __future__ import annotations

from exporter.runtimes.browsers import Browser, find_browsers

NAMES = {"chromium": ("chromium", "chrome"), "firefox": ("firefox",)}


def find(name: str) -> Browser | None:
    """Return an installed browser that can stand for ``name``."""
    return next((browser for browser in find_browsers() if browser.name in NAMES[name]), None)


def installed(name: str) -> Browser:
    """Return the browser of that name; the tests need it."""
    found = find(name)
    assert found is not None, f"{name} is not installed, which these tests need"
    return found


if __name__ == "__main__":
    missing = [" or ".join(kinds) for name, kinds in NAMES.items() if find(name) is None]
    if missing:
        raise SystemExit(f"the tests need {' and '.join(missing)}")
