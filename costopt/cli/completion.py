"""costopt completion"""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print shell completion code.

    \b
    bash: eval "$(costopt completion bash)"        in ~/.bashrc
    zsh:  eval "$(costopt completion zsh)"         in ~/.zshrc
    fish: costopt completion fish > ~/.config/fish/completions/costopt.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "costopt", "_COSTOPT_COMPLETE").source())
