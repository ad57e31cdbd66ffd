import pytest


@pytest.fixture(autouse=True)
def _no_warnings(warnings_are_errors, caplog):
    """A picture comes without a warning, neither from Python nor in matplotlib's log."""
    yield
    assert not [record.message for record in caplog.records if record.levelname == "WARNING"]
