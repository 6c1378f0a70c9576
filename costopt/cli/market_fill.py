"""costopt market fill"""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True,
              metavar="FILE", help="The parquet file to write; may be the same.")  # fmt: skip
@click.option("--profile", default="typical", help="calm, typical or harsh.")
@click.option("--seed", type=int, default=0, help="Another seed gives other capacity.")
def fill(file: Path, out: Path, profile: str, seed: int) -> None:
    """Model the capacity that a record of prices leaves open.

    Spot pools whose price was recorded and whose capacity was not get that of a generated market,
    so that backtest can replay the record; what was observed stays. The file says what is modelled.
    """
    from costopt.market.fill import fill_capacity
    from costopt.market.history_file import read_history, write_history

    history = fill_capacity(read_history(file), seed=seed, profile=profile)
    write_history(history, out)
    click.echo(f"wrote {out}: capacity modelled, profile {profile}, seed {seed}", err=True)
