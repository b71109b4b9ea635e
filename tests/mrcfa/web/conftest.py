"""A site on a host."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from static_host import Host, hosted

from mrcfa.bundle import Bundle
from mrcfa.web.runtime import runtime_files
from mrcfa.web.site import write_site

ARCHIVE = Path(__file__).parents[3] / "build" / "onnxruntime-web.tgz"


@pytest.fixture(scope="session")
def browsed(bundle: Callable[..., Path]) -> Path:
    """The bundle of the site."""
    return bundle("b0", variants=("fp32", "fp32-gpu"))


@pytest.fixture
def host(once: Callable[..., Path], browsed: Path) -> Iterator[Host]:
    if not ARCHIVE.is_file():
        pytest.skip("Browser: not run (make build/onnxruntime-web.tgz brings the runtime, by npm)")

    def make(path: Path) -> None:
        write_site(Bundle.open(browsed), path, runtime_files(ARCHIVE))

    with hosted(once("site", make)) as host:
        yield host
