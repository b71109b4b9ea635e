"""`Served`: the facts about a served model in Triton's `parameters`, so clients need no bundle."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import mrcfa
from mrcfa.bundle import Bundle
from mrcfa.bundle.manifest import Output
from mrcfa.data.decoding import Damage, from_json
from mrcfa.data.labels import Colour
from mrcfa.errors import Damaged, Mismatch
from mrcfa.machine.files import fingerprint
from mrcfa.model.config import Config
from mrcfa.model.input_format import RGB, InputFormat


@dataclass(frozen=True)
class Served:
    """The facts about a served model, one field for each parameter.

    Texts are written as they are, all other values as JSON.
    """

    mrcfa: str
    """The version that wrote the repository."""
    bundle: str
    """`identity` of the bundle."""
    variant: str
    """The variant of the bundle that runs."""
    config: Config
    frame: tuple[int, int]
    output: Output
    classes: tuple[str, ...]
    palette: tuple[Colour, ...]
    sequences: int
    """The most cameras that the server holds at once; 0 if the model has no memory."""
    input: InputFormat = RGB

    @property
    def streams(self) -> int:
        """The streams of one connection. Only the server knows whether it batches them."""
        return 1

    def to_json(self) -> str:
        return json.dumps(self.to_parameters())

    @classmethod
    def of(cls, bundle: Bundle, variant: str, output: Output, sequences: int) -> "Served":
        manifest = bundle.manifest
        return cls(
            mrcfa=mrcfa.__version__,
            bundle=identity(bundle),
            variant=variant,
            config=manifest.config,
            frame=manifest.frame,
            output=output,
            classes=manifest.classes,
            palette=manifest.palette,
            sequences=sequences,
            input=manifest.input,
        )

    def to_parameters(self) -> dict[str, str]:
        return {
            name: str(value) if isinstance(value, str) else json.dumps(value)
            for name, value in asdict(self).items()
        } | {"output": self.output.value}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str], place: str) -> "Served":
        """Read the parameters. An error names the parameter and the server."""
        texts = ("mrcfa", "bundle", "variant", "output")
        try:
            content = {
                name: text if name in texts else json.loads(text)
                for name, text in parameters.items()
                if name in cls.__annotations__
            }
            served = from_json(cls, content)
            if not len(served.classes) == len(served.palette) == served.config.classes:
                raise ValueError("classes, palette and config do not agree on how many there are")
            return served
        except (Damage, ValueError) as error:
            raise Damaged(
                f"{place} is no model that mrcfa wrote ({error}); make its repository with: "
                "mrcfa triton BUNDLE -o REPOSITORY"
            ) from None

    def check(self, bundle: Bundle, place: str) -> None:
        """Refuse a bundle that is not the served one."""
        ours = identity(bundle)
        if ours == self.bundle:
            return
        config = bundle.config
        raise Mismatch(
            f"{place} serves the bundle {self.bundle} ({_named(self.config)}, mrcfa {self.mrcfa}) "
            f"and {bundle.path} is the bundle {ours} ({_named(config)}, mrcfa "
            f"{bundle.manifest.mrcfa}); open the one that is served, or serve this one with: "
            f"mrcfa triton {bundle.path} -o REPOSITORY --force"
        )


def identity(bundle: Bundle) -> str:
    """A hash of the graphs, the weights and everything else that the answers depend on.

    Engines are made from the graphs, so they are left out: a new engine changes nothing.
    """
    manifest = bundle.manifest
    engines = {
        name for each in manifest.engines for name in (each.encoder, each.decoder, each.layers)
    }
    files = {name: entry.sha256 for name, entry in manifest.files.items() if name not in engines}
    return fingerprint(sorted(files.items()), manifest.classes, manifest.palette)


def _named(config: Config) -> str:
    size = "×".join(map(str, config.size))
    return f"{config.dataset} {config.backbone} {size}"
