"""JupyterLab from this environment, and headless Chromium: the fixtures of the browser tests."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SETTINGS = {
    # Every cell must be in the page, also those that are not on the screen.
    "notebook-extension/tracker": '{"windowingMode": "none"}',
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
}
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        reason = "Chromium is not installed (on Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session")
def start_lab(chromium, tmp_path_factory):
    """A function: JupyterLab on a copy of a folder of notebooks; gives its address."""
    servers = []

    def start(folder):
        home = tmp_path_factory.mktemp("lab")
        root = Path(shutil.copytree(folder, home / "notebooks"))
        for name, text in SETTINGS.items():
            file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
        command += [f"--ServerApp.root_dir={root}", "--ServerApp.ip=127.0.0.1"]
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
        command += ["--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
        environment = os.environ | {
            "JUPYTER_PREFER_ENV_PATH": "1",
            "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
            "IPYTHONDIR": str(home / "ipython"),
        }
        environment.pop("MPLBACKEND", None)
        with (home / "log").open("w") as log:
            server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        servers.append(server)
        address = f"http://127.0.0.1:{port}"
        _wait_until_up(address, server, home / "log")
        return address

    yield start
    for server in servers:
        server.terminate()
        server.wait(timeout=20)


def _wait_until_up(address, server, log):
    for _ in range(120):
        assert server.poll() is None, f"JupyterLab stopped:\n{log.read_text()}"
        try:
            with urllib.request.urlopen(f"{address}/api/status", timeout=1):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"JupyterLab did not answer within a minute:\n{log.read_text()}")


@pytest.fixture(scope="session")
def lab(start_lab):
    return start_lab(NOTEBOOKS)


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser):
    """A function: an empty page for the JupyterLab at an address."""
    pages = []

    def new(address):
        page = browser.new_page(base_url=address, viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(60_000)
        pages.append(page)
        return page

    yield new
    for page in pages:
        page.close()


@pytest.fixture
def page(new_page, lab):
    return new_page(lab)
