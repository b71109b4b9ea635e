import pytest
import torch


@pytest.fixture(autouse=True)
def _gradients():
    with torch.enable_grad():
        yield


@pytest.fixture(autouse=True)
def _no_report(monkeypatch):
    """Drawing takes a third of a short run; the run of `finished` has its report."""
    monkeypatch.setattr("mrcfa.training.loop.write_report", lambda *_: None)
