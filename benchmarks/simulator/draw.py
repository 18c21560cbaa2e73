"""Draws what policies cost. Needs matplotlib (requirements-bench.txt)."""

from pathlib import Path
from typing import Sequence

from benchmarks.simulator.report import Table


def costs(tables: Sequence[Table], folder: Path) -> Path:
    """Draws a panel for each table of `policies_table.table`: bytes read by a restore over bytes written, a policy a point.

    Returns:
        The picture's path, in `folder`, which is made.
    """
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    columns = min(3, len(tables))
    lines = -(-len(tables) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4.6 * columns, 3.6 * lines), squeeze=False, layout="constrained")
    for axis in axes.flat[len(tables):]:
        axis.axis("off")
    names = sorted({row[0] for table in tables for row in table.rows if not row[0].startswith("adaptive")})
    for panel, (axis, table) in enumerate(zip(axes.flat, tables)):
        for name, written, restore, _, cost in table.rows:
            if name.endswith("unbounded"):
                axis.scatter(written, restore, s=46, marker="*", color="black", zorder=2,
                             label="adaptive dynamic, marginal, unbounded" if panel == 0 else None)
            elif name.startswith("adaptive"):
                marginal, solid = "marginal" in name, "dynamic" in name
                axis.scatter(written, restore, s=46, marker="*" if marginal else "D", zorder=3,
                             facecolor="crimson" if solid else "none", edgecolor="crimson",
                             label=f"adaptive {'dynamic' if solid else 'bisection'}, {'marginal' if marginal else 'period'}"
                             if "updates" in name and panel == 0 else None)
            else:
                number = names.index(name)
                axis.scatter(written, restore, s=34, marker="osv^P<>X"[number % 8], color=f"C{number % 10}",
                             label=name if panel == 0 else None)
        axis.set(xscale="log", yscale="log", xlabel="written, MB per checkpoint", ylabel="read by a restore, MB")
        axis.set_title(table.title, fontsize=8)
        axis.grid(alpha=0.3, which="both")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    path = folder / "policies.png"
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return path
