"""`mrcfa build`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.bundle.manifest import Device
from mrcfa.bundle.precisions import PRECISIONS, PREFERRED
from mrcfa.console.progress import filling
from mrcfa.engines.choices import FlavourChoice, PluginUse
from mrcfa.errors import named


def build(
    bundle: Annotated[Path, typer.Argument(help="A bundle's directory.")],
    flavour: Annotated[
        FlavourChoice, typer.Option(help="tensorrt (this machine's GPU) or rtx (no GPU needed).")
    ] = FlavourChoice.AUTO,
    sm: Annotated[
        list[str] | None,
        typer.Option(help="Compute capability, such as 75; repeat it for several in one engine."),
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option(help='Or a GPU by its name, such as "quadro rtx 6000".')
    ] = None,
    precision: Annotated[
        str,
        typer.Option(help=f"Of a variant for GPUs that the bundle has: {named(PRECISIONS)}."),
    ] = PREFERRED[Device.GPU],
    plugin: Annotated[
        PluginUse, typer.Option(help="SelectTokens as a plugin; auto: where it must be one.")
    ] = PluginUse.AUTO,
    plugin_library: Annotated[
        Path | None,
        typer.Option(help="libmrcfa_plugin.so. Default: $MRCFA_PLUGIN_LIBRARY."),
    ] = None,
    timing_cache: Annotated[
        Path | None, typer.Option(help="Kept between builds to make them faster (tensorrt).")
    ] = None,
    workspace: Annotated[
        int | None, typer.Option(metavar="MB", help="Most scratch memory a kernel may take.")
    ] = None,
    optimization_level: Annotated[
        int | None, typer.Option(help="0 (builds fast) to 5 (runs fast).")
    ] = None,
    version_compatible: Annotated[
        bool,
        typer.Option("--version-compatible", help="For other minor versions too (tensorrt)."),
    ] = False,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Then run each engine once, so that later starts are fast."),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print all TensorRT says.")] = False,
) -> None:
    """Compile a bundle's graphs to TensorRT engines, for the GPU here or for the usual ones."""
    from mrcfa.engines.builder import BuildOptions, build_engines
    from mrcfa.engines.gpus import compute_capability, parse_sm
    from mrcfa.engines.target import choose_targets
    from mrcfa.engines.warm import warmed

    wanted = [*map(parse_sm, sm or ()), *map(compute_capability, gpu or ())]
    options = BuildOptions(
        precision=precision,
        plugin=plugin,
        plugin_library=plugin_library,
        timing_cache=timing_cache,
        workspace_mb=workspace,
        optimization_level=optimization_level,
        version_compatible=version_compatible,
        verbose=verbose,
    )
    for target in choose_targets(flavour, wanted, precision):
        with filling() as show:
            built = build_engines(bundle, target, options, show)
        for part, plan in built.plans.items():
            typer.echo(
                f"{part}: {len(plan.content) / 1e6:.1f} MB, {len(plan.layers)} layers, "
                + (f"{plan.cost.bytes_written / 1e6:.1f} MB written a frame, " if plan.cost else "")
                + f"{plan.seconds:.1f} s"
            )
        typer.echo(f"added the engine {built.engine.name} to {bundle}")
    if warm:
        for sentence in warmed(bundle, plugin_library):
            typer.echo(sentence)
