"""The peer: single-frame SegFormer as a `Backend` in ONNX Runtime."""

from pathlib import Path

import mrcfa
from mrcfa.backends import Arrays, Backend, Image
from mrcfa.backends.onnxruntime import open_session
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.machine.extras import load
from mrcfa.machine.files import cache_folder, fingerprint


class Peer(Backend):
    """One graph without state, run with the same settings of ONNX Runtime as a stream.

    It is compared in speed only, because it is another model.
    """

    def __init__(self, bundle: Bundle, provider: str, precision: str, threads: int) -> None:
        path = written_peer(bundle, precision)
        self._session = open_session(path.read_bytes(), path, provider, threads)
        self.model, self._output = bundle.manifest, bundle.manifest.output.value
        self.name = f"{peer_name(bundle)} in onnxruntime ({provider.upper()}, {precision})"

    def start(self) -> None:
        return None

    def timed_step(self, image: Image, state: None) -> tuple[Arrays, None, dict[str, float]]:
        (answer,) = self._session.run([self._output], {"image": image[None]})
        return {self._output: answer[0]}, None, {}


def peer_name(bundle: Bundle) -> str:
    return f"segformer-{bundle.config.backbone}"


def written_peer(bundle: Bundle, precision: str) -> Path:
    """The peer's graph in the user's cache, written if it is not there.

    A bundle holds the graphs of its own method alone.
    """
    manifest = bundle.manifest
    weights = manifest.files[WEIGHTS].sha256
    ends = (manifest.frame, manifest.input, manifest.output)
    facts = (mrcfa.__version__, manifest.config, *ends, weights)
    folder = cache_folder("peer", fingerprint(*facts))
    path = folder / f"{peer_name(bundle)}.{precision}.onnx"
    if not path.is_file():
        load("mrcfa.benchmarks.segformer").write_segformer(bundle, precision, path)
    return path
