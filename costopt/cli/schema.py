"""costopt schema"""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("kind", type=click.Choice(["job", "policy", "account"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a file format.

    Editors use it to complete and check the files as they are written.
    """
    from costopt.spec import account_schema, job_schema, policy_schema

    schemas = {"job": job_schema, "policy": policy_schema, "account": account_schema}
    click.echo(json.dumps(schemas[kind](), indent=2, ensure_ascii=False))
