"""The command line: a2m-conformance."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from a2m_conformance.http import HttpWire
from a2m_conformance.outcome import Unreachable
from a2m_conformance.report import print_report, print_requirements, write_json, write_junit
from a2m_conformance.requirement import load
from a2m_conformance.runner import Options, Run, run
from a2m_conformance.stdio import StdioWire
from a2m_conformance.wire import Wire

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def conformance(
    url: Annotated[str | None, typer.Option(help="The server's JSON-RPC endpoint.")] = None,
    command: Annotated[str | None, typer.Option(help="A command that serves A2M on stdio.")] = None,
    token: Annotated[str | None, typer.Option(envvar="A2M_TOKEN", help="Bearer token.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds the bearer token.")] = None,
    other_token: Annotated[
        str | None, typer.Option(help="Another principal's, for isolation checks.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this id or prefix alone; repeatable.")] = None,
    local: Annotated[bool, typer.Option(help="Include the rules that are this project's own choice.")] = True,
    slow: Annotated[bool, typer.Option(help="Include the slow checks.")] = True,
    read_only: Annotated[
        bool | None, typer.Option(help="Choose the profile instead of detecting it.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option(help="The token is one whose owner parameter is believed.")
    ] = False,
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Fix this width of vectors in a store that has none yet.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one check may take.")] = 20.0,
    junit: Annotated[Path | None, typer.Option(help="Write a JUnit report.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write a JSON report.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every requirement.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="Print the requirements and stop.")] = False,
) -> None:
    """Check an A2M 0.1 server from outside. Ends with 0 if it conforms, 1 if not, 2 if it cannot be tried."""
    console = Console()
    prefixes = tuple(only or ())
    chosen = [item for item in load().values() if not prefixes or item.id.startswith(prefixes)]
    if list_only:
        print_requirements(chosen, console)
        return
    if not chosen:
        _refuse(f"no requirement begins with {' or '.join(prefixes)}; --list shows them")
    if (url is None) == (command is None):
        _refuse("give either --url or --command")
    options = Options(prefixes, local, slow, timeout, read_only, trusted, dimensions)
    secret = token_file.read_text(encoding="utf-8").strip() if token_file else token
    try:
        finished = asyncio.run(_against(url, command, secret, other_token, options, console))
    except Unreachable as problem:
        _refuse(f"cannot be tried: {problem}")
        return
    print_report(finished, console, every=verbose)
    if junit:
        write_junit(finished, junit)
    if json_file:
        write_json(finished, json_file)
    raise typer.Exit(0 if finished.passed else 1)


async def _against(
    url: str | None,
    command: str | None,
    token: str | None,
    other_token: str | None,
    options: Options,
    console: Console,
) -> Run:
    wire: Wire
    if command is not None:
        wire = await StdioWire.start(command, {"A2M_TOKEN": token} if token else None)
    else:
        wire = HttpWire(url or "", token, other_token, timeout=options.timeout)
    try:
        with console.status("running the checks") as status:
            return await run(wire, options, lambda outcome: status.update(f"done: {outcome.requirement.id}"))
    finally:
        await wire.close()


def _refuse(why: str) -> None:
    Console(stderr=True).print(why, style="red", markup=False)
    raise typer.Exit(2)


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
