"""costopt schema"""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("kind", type=click.Choice(["job", "policy"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file format.

    Editors use it to complete and check job and policy files as they are written.
    """
    from costopt.spec import job_schema, policy_schema

    document = job_schema() if kind == "job" else policy_schema()
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
