"""Models, runs and small makers that several test files use. Nothing here needs a network."""

import asyncio
import importlib.util
import os
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor

# Read when the libraries are imported, so set first: no model that happens to be in the cache of
# this machine.
_EMPTY_CACHE = tempfile.TemporaryDirectory(prefix="no-models-")
os.environ["HF_HUB_CACHE"] = _EMPTY_CACHE.name
# hypothesis would keep notes in the clone, and let what it finds depend on them.
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = _EMPTY_CACHE.name

import matplotlib

matplotlib.use("Agg")  # not by MPLBACKEND, which the kernels of the notebooks would inherit

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import settings
from nbclient.exceptions import CellTimeoutError
from oracle import reference
from oracle.tiny_models import FAMILIES, randomise, save

from helpers import load_model, trace

# Every run of the tests tries the same examples.
settings.register_profile("course", derandomize=True, deadline=None, database=None)
settings.load_profile("course")
torch.set_num_threads(1)  # several test processes share the cores
SENTENCE = "The keys to the cabinet, which was locked yesterday, are on the table. She saw them."


@pytest.fixture(scope="session")
def minilm():
    return load_model()


@pytest.fixture(scope="session")
def run(minilm):
    return trace(minilm, SENTENCE)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A function: the name of a tiny architecture gives a model, written to a folder and loaded."""
    made = {}

    def make(name: str):
        if name not in made:
            folder = tmp_path_factory.mktemp("tiny")
            save(name, folder, seed=(*FAMILIES, name).index(name))
            made[name] = load_model(folder)
        return made[name]

    return make


@pytest.fixture(scope="session", params=("minilm", *FAMILIES))
def any_model(request, minilm, tiny):
    """MiniLM and a tiny model of each family, one after the other."""
    return minilm if request.param == "minilm" else tiny(request.param)


@pytest.fixture(scope="session")
def any_run(any_model):
    return trace(any_model, SENTENCE if any_model.name == "minilm" else "The keys, she saw them.")


@pytest.fixture(scope="session")
def randomised():
    """The function `randomise`, for tests that build a network of their own."""
    return randomise


@pytest.fixture(scope="session")
def parts():
    """A function: one block of a run as the plain tensors that the naive reference takes."""
    return reference.Parts.of


@pytest.fixture(scope="session")
def load_script():
    """A function: the path of a script of the project gives it as a module."""

    def load(path):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def execute():
    """A function that runs a NotebookClient, in a thread of its own.

    Where tests in the browser came first, Playwright's event loop still runs in the main thread,
    and the client would wait for it forever.
    """

    def run(client):
        client.timeout = 120  # seconds for one cell
        for attempt in range(3):
            try:
                with ThreadPoolExecutor(1) as pool:
                    # asyncio.run closes the loop that it opens.
                    return pool.submit(asyncio.run, client.async_execute()).result()
            except CellTimeoutError:
                # On a busy machine a kernel now and then loses a request and waits for ever.
                if attempt == 2:
                    raise

    return run


@pytest.fixture
def warnings_are_errors():
    """For files whose tests draw: a picture must come without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(autouse=True)
def _no_open_figures():
    yield
    plt.close("all")
