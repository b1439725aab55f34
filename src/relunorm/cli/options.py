"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

#: What most commands are about.
ModelFile = Annotated[str, typer.Argument(help="A model file: READERS.")]

#: Where inputs live, spelled out, and the option of most commands.
DOMAINS = "box:LO,HI, box:@f.npz, ball:R, polytope:@f.npz or data:table.csv"
DOMAIN: Any = typer.Option(help=f"{DOMAINS}.")

#: The option every command has.
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]

#: The option of every command that shows its progress.
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]

#: Of a command whose answer gets better with time, and of one whose answer has a proof.
TimeLimit = Annotated[
    float,
    typer.Option(help="Seconds, start-up and compiling aside; what is known then is the answer."),
]
Proof = Annotated[
    str | None, typer.Option(help="Write the proof to this file, JSON; relunorm verify replays it.")
]

#: Threads or processes of a command that can use several.
Jobs = Annotated[
    int | None, typer.Option("-j", "--jobs", help="Threads or processes; -1 for all cores.")
]
Backend = Annotated[
    str | None, typer.Option(help="Where parts run, instead of in threads: BACKENDS.")
]
#: Of what runs in processes anyway.
Runs = Annotated[str | None, typer.Option(help="BACKENDS; loky if omitted.")]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of the backend's running cluster, as tcp://host:8786.")
]

#: A table of inputs, and which of its columns are none.
DATA: Any = typer.Option(help="A table: csv, npz with x, npy, parquet; or example:moons.")
Drop = Annotated[
    list[str] | None, typer.Option(help="A column of the table to leave out; repeatable.")
]
Target = Annotated[
    list[str] | None,
    typer.Option(help="The table's column to predict, which is no input; repeatable."),
]


#: The labels of a target, for a model that does not name its classes or names others.
Classes = Annotated[
    str | None,
    typer.Option(
        help="The labels in the order of the model's outputs: a,b,c; quote one with a comma as in "
        "a csv: '\"Oslo, Norway\",Rome'. By default those of the model, or sorted."
    ),
]

#: For models whose file does not fix the input shape.
Example = Annotated[
    str | None,
    typer.Option(help="Shape of one input, such as 1,28,28, where the file leaves it open."),
]
