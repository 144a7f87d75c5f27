"""Browsers installed on this machine, and how to start one without a window."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Browser", "find_browsers", "start_command"]

_PROGRAMS = {
    "chromium": ("chromium", "chromium-browser"),
    "chrome": (
        "google-chrome",
        "google-chrome-stable",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    ),
    "firefox": (
        "firefox",
        "firefox-esr",
        "/Applications/Firefox.app/Contents/MacOS/firefox",
    ),
}
_VERSION = re.compile(r"\b(\d+\.[\w.]+)")

_CHROMIUM_OPTIONS = (
    "--headless=new",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-gpu",
    # A page that nobody looks at must run as fast as one that somebody does.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    # Containers often give /dev/shm 64 MB, which a large page fills.
    "--disable-dev-shm-usage",
    "--password-store=basic",
    "--use-mock-keychain",
)

_FIREFOX_PREFERENCES = """\
user_pref("app.normandy.enabled", false);
user_pref("app.update.enabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("browser.safebrowsing.downloads.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("dom.ipc.processPrelaunch.enabled", false);
user_pref("extensions.getAddons.cache.enabled", false);
user_pref("extensions.systemAddon.update.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,");
user_pref("toolkit.telemetry.enabled", false);
user_pref("toolkit.telemetry.unified", false);
"""
"""An empty profile that asks nobody for anything."""


@dataclass(frozen=True)
class Browser:
    """An installed browser.

    Args:
        name: ``chromium``, ``chrome`` or ``firefox``: what records call it, those of the pages
            too.
        path: the program.
        version: as it says itself.
    """

    name: str
    path: Path
    version: str


def find_browsers() -> list[Browser]:
    """Return the browsers that are here and start, one of each name."""
    found = []
    for name, programs in _PROGRAMS.items():
        for program in programs:
            path = shutil.which(program)
            version = _version(path) if path else None
            if path and version:
                found.append(Browser(name, Path(path), version))
                break
    return found


def start_command(browser: Browser, profile: Path, url: str) -> list[str]:
    """Return the command that opens ``url`` without a window.

    Args:
        browser: which.
        profile: an empty folder; Firefox's gets its preferences here.
        url: the page.
    """
    if browser.name == "firefox":
        (profile / "user.js").write_text(_FIREFOX_PREFERENCES, encoding="utf-8")
        options = ["--headless", "--no-remote", "--profile", str(profile)]
        return [str(browser.path), *options, url]
    options = [*_CHROMIUM_OPTIONS, f"--user-data-dir={profile}"]
    if os.geteuid() == 0:  # root has no sandbox to be put into
        options.append("--no-sandbox")
    return [str(browser.path), *options, url]


def _version(path: str) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    return match[1] if match and done.returncode == 0 else None
