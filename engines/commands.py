"""`mrcfa build`."""

from pathlib import Path
from typing import Annotated

import typer

from mrcfa.bundle.manifest import Device
from mrcfa.bundle.precisions import PRECISIONS, PREFERRED
from mrcfa.console.arguments import ADVANCED
from mrcfa.console.progress import filling
from mrcfa.engines.choices import FlavourChoice, PluginUse
from mrcfa.errors import named


def build(
    bundle: Annotated[Path, typer.Argument(help="Directory of the bundle.")],
    flavour: Annotated[
        FlavourChoice,
        typer.Option(
            help="TensorRT to build with: tensorrt (for this machine's GPU), rtx (no GPU needed), "
            "or auto (tensorrt if it and a GPU are here, else rtx)."
        ),
    ] = FlavourChoice.AUTO,
    precision: Annotated[
        str,
        typer.Option(help=f"Precision of the engine, if the bundle has it: {named(PRECISIONS)}."),
    ] = PREFERRED[Device.GPU],
    sm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SM",
            help="Compute capability to build for, such as 75; repeat the option for one engine "
            "for several. Default: this machine's GPU, or 75 and 86+89 without one.",
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help='GPU to build for by its name, such as "quadro rtx 6000", instead of --sm.',
        ),
    ] = None,
    warm: Annotated[
        bool,
        typer.Option(
            "--warm", help="Run each engine once after the build, so that later starts are fast."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print all messages of TensorRT.")
    ] = False,
    plugin: Annotated[
        PluginUse,
        typer.Option(
            help="Use of the plugin SelectTokens; auto uses it only if TensorRT's TopK is too "
            "small.",
            rich_help_panel=ADVANCED,
        ),
    ] = PluginUse.AUTO,
    plugin_library: Annotated[
        Path | None,
        typer.Option(
            help="File of the plugin, libmrcfa_plugin.so. Default: $MRCFA_PLUGIN_LIBRARY.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    timing_cache: Annotated[
        Path | None,
        typer.Option(
            help="File that keeps kernel timings, so that later builds are faster (tensorrt only). "
            "Default: none.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    workspace: Annotated[
        int | None,
        typer.Option(
            metavar="MB",
            help="Largest scratch memory of a kernel, in MB. Default: TensorRT's.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    optimization_level: Annotated[
        int | None,
        typer.Option(
            help="Effort of the build, from 0 (builds fast) to 5 (runs fast). Default: TensorRT's.",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    version_compatible: Annotated[
        bool,
        typer.Option(
            "--version-compatible",
            help="Build an engine that also runs with other minor versions (tensorrt only).",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
) -> None:
    """Compile a bundle's graphs to TensorRT engines for one or several GPUs."""
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
            cost = plan.log.cost
            typer.echo(
                f"{part}: {len(plan.content) / 1e6:.1f} MB, {len(plan.log.layers)} layers, "
                + (f"{cost.bytes_written / 1e6:.1f} MB written per frame, " if cost else "")
                + f"built in {plan.seconds:.1f} s; form: {built.engine.forms[part]}"
            )
        typer.echo(f"added the engine {built.engine.name} to {bundle}")
    if warm:
        for sentence in warmed(bundle, plugin_library):
            typer.echo(sentence)
