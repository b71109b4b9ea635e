"""A site on a host."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, SOFTWARE_GPU, Browser
from static_host import Host, hosted

from mrcfa.bundle import Bundle
from mrcfa.web.runtime import runtime_files
from mrcfa.web.site import write_site

ARCHIVE = Path(__file__).parents[3] / "build" / "onnxruntime-web.tgz"


@pytest.fixture(scope="session")
def site(once: Callable[..., Path]) -> Callable[[Path], Path]:
    """`site(bundle)`: the folder of its site."""
    if not ARCHIVE.is_file():
        pytest.skip("Browser: not run (make build/onnxruntime-web.tgz brings the runtime)")

    def written(bundle: Path) -> Path:
        def make(path: Path) -> None:
            write_site(Bundle.open(bundle), path, runtime_files(ARCHIVE))

        return once(f"site-of-{bundle.name}", make)

    return written


@pytest.fixture(scope="module")
def host(site: Callable[[Path], Path], demo: Callable[[str], Path]) -> Iterator[Host]:
    with hosted(site(demo("fp32"))) as host:
        yield host


@pytest.fixture(scope="module")
def gpu_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser with WebGPU on a software adapter, and with a camera that sends a test picture."""
    if CHROMIUM is None:
        pytest.skip("not run: chromium is not installed")
    camera = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    profile = tmp_path_factory.mktemp("browser")
    with closing(Browser(profile, *camera, gpu=SOFTWARE_GPU)) as opened:
        yield opened


@pytest.fixture(scope="module")
def gpu_host(site: Callable[[Path], Path], demo: Callable[[str], Path]) -> Iterator[Host]:
    """Its bundle has only graphs for GPUs in FP32, which WASM can run as well."""
    with hosted(site(demo("fp32-gpu"))) as host:
        yield host
