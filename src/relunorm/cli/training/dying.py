"""``relunorm dying``: basin maps of one unit, and the sweep behind figure 1."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from relunorm.cli import options
from relunorm.cli.inputs import only
from relunorm.cli.output import Console, check_writable, emit, epilog, print_table, showing

dying = typer.Typer(
    name="dying",
    help="Dying ReLU: maps of one unit and the sweep of figure 1.",
    no_args_is_help=True,
)


@dying.command(
    name="map",
    epilog=epilog(
        "relunorm dying map --gamma 1 --beta 0.9 -o map.png",
        "relunorm dying map --gamma 0.1 --eta 0.05 --json",
    ),
)
def map_(
    gamma: Annotated[float, typer.Option(help="Scale of the target.")] = 1.0,
    beta: Annotated[float, typer.Option(help="Momentum.")] = 0.0,
    eta: Annotated[float, typer.Option(help="Step size.")] = 0.1,
    delta: Annotated[float, typer.Option(help="Shift of the target.")] = 0.0,
    grid: Annotated[int, typer.Option(help="Starts per axis.")] = 201,
    extent: Annotated[float, typer.Option(help="Half the side of the window.")] = 2.0,
    device: Annotated[str | None, typer.Option(help="A torch device, for example cuda.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the map (png, pdf, svg).")
    ] = None,
    json: options.Json = False,
) -> None:
    """Which starting parameters of one unit reach the optimum and which die (figures 3-5)."""
    from relunorm.dying.basins import basin

    check_writable(out)
    found = basin(gamma, beta, eta, grid, extent, delta=delta, device=device)
    if out is not None:
        from relunorm.dying.basins import plot_basin

        plot_basin(found).savefig(out, dpi=120)
    document = {**found.to_dict(), "file": str(out) if out is not None else None}

    def render(console: Console) -> None:
        console.print(
            f"gamma {gamma:g}, beta {beta:g}: optimum {found.optimum:.1f}%, "
            f"dead {found.dead:.1f}%, other {found.other:.1f}% of {grid}x{grid} starts"
        )
        if out is not None:
            console.print(f"wrote {out}", markup=False)

    emit(document, json, render)


@dying.command(
    epilog=epilog(
        "relunorm dying sweep --updates 3000",
        "relunorm dying sweep --data table.csv --target y --optimizer adam --gamma 0.1 --gamma 1",
    )
)
def sweep(
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="FILE, FILE?target=COLUMN, openml:NAME, diabetes or friedman; repeatable."
        ),
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="The column to predict of every FILE that names none.")
    ] = None,
    updates: Annotated[int, typer.Option(help="Gradient updates; 250000 in the paper.")] = 30_000,
    gamma: Annotated[list[float] | None, typer.Option(help="Target scales; repeatable.")] = None,
    delta: Annotated[list[float] | None, typer.Option(help="Target shifts; repeatable.")] = None,
    optimizer: Annotated[list[str] | None, typer.Option(help="Optimizers; repeatable.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds per setting; 8 in the paper.")] = 2,
    hidden: Annotated[int, typer.Option(help="Hidden units.")] = 200,
    batch: Annotated[int, typer.Option(help="Rows per update.")] = 64,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save here and resume from here after a kill.")
    ] = None,
    every: Annotated[int, typer.Option(help="Updates between checkpoints.")] = 1000,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; stops and keeps.")] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train figure 1's grid, all runs together; print error and dead share per setting."""
    from relunorm.dying.scale_sweep import GAMMAS, RULES, Plan, Sweep, by_name
    from relunorm.papers.dying.target_scales import load_tables

    tables = load_tables(data or ["diabetes"], only(target, "--target"))
    rules = by_name(optimizer) if optimizer else RULES
    scales, shifts = tuple(gamma or GAMMAS), tuple(delta or (0.0,))
    plan = Plan(tuple(tables), scales, shifts, rules, tuple(range(seeds)), hidden, batch, updates)
    run = Sweep(plan, tables, device=device, checkpoint=checkpoint, every=every)

    with showing("training", json or quiet) as show:
        found = run.run(show, time_limit)
    document = found.to_dict()
    emit(document, json, lambda console: _render(console, plan, found))
    raise typer.Exit(0 if found.updates >= updates else 3)


def _render(console: Console, plan: Any, found: Any) -> None:
    rows = []
    for name, rule, gamma, delta in product(plan.data, plan.rules, plan.gammas, plan.deltas):
        where = {"data": name, "optimizer": rule.name, "gamma": gamma, "delta": delta}
        mse, dead = found.mean("mse", **where), found.mean("dead", **where)
        rows.append([name, rule.name, f"{gamma:g}", f"{delta:g}", f"{mse:.3g}", f"{dead:.1%}"])
    heads = ("data", "optimizer", "gamma", "delta", "MSE / gamma^2", "dead")
    print_table(console, heads, rows)
    console.print(f"{found.updates:,} updates, {found.seconds:.1f} s")
