"""Two examples for the help of every command; the tests parse each of them."""

from __future__ import annotations

#: Command -> lines to type, as they stand in its help.
EXAMPLES = {
    "report": (
        "relunorm report model.onnx --data test.csv --target y -o page.html",
        "relunorm report example:moons --data example:moons --domain box:-2,3 --open",
    ),
    "info": ("relunorm info model.onnx", "relunorm info model.pt2 --example 1,28,28 --json"),
    "convert": (
        "relunorm convert model.onnx model.npz",
        "relunorm convert model.safetensors model.onnx --dtype float64",
    ),
    "normalize": (
        "relunorm normalize model.onnx -o small.onnx --domain data:train.csv?target=y",
        "relunorm normalize model.onnx --form canonical --domain box:-1,1 --certificate proof.json",
    ),
    "export": (
        "relunorm export model.onnx -o net.c --domain box:-1,1 --bits 16",
        "relunorm export model.onnx -o net.c --domain data:train.csv --epsilon 0.01 --target avr",
    ),
    "compare": (
        "relunorm compare model.onnx export.onnx --domain box:-1,1",
        "relunorm compare old.onnx new.onnx --domain data:test.csv --tolerance 1e-3 --json",
    ),
    "check": (
        "relunorm check model.onnx property.vnnlib",
        "relunorm check model.onnx property.vnnlib --time-limit 300 --proof proof.json",
    ),
    "certify": (
        "relunorm certify model.onnx --data test.csv --target y --eps 0.03",
        "relunorm certify model.onnx --data test.csv --target y --norm 2 --rows 20",
    ),
    "sensitivity": (
        "relunorm sensitivity model.onnx --domain data:train.csv?target=y",
        "relunorm sensitivity model.onnx --domain box:-1,1 -o slopes.png",
    ),
    "fingerprint": (
        "relunorm fingerprint model.onnx --domain box:-1,1",
        "relunorm fingerprint model.onnx --digits 6",
    ),
    "verify": (
        "relunorm verify proof.json model.onnx small.onnx",
        "relunorm verify proof.json model.onnx --json",
    ),
    "regions": (
        "relunorm regions example:moons --domain box:-2,3 -o regions.png",
        "relunorm regions model.onnx --domain box:-1,1 --slice 0,3 -o plane.png",
    ),
    "region": (
        "relunorm region example:moons --at 0.1,0.2",
        "relunorm region model.onnx --at x.npy --polytope --json",
    ),
    "lipschitz": (
        "relunorm lipschitz model.onnx --domain data:train.csv",
        "relunorm lipschitz model.onnx --domain box:0,1 --norm inf --time-limit 60",
    ),
    "maximize": (
        "relunorm maximize model.onnx --domain box:-1,1 --direction 1,-1",
        "relunorm maximize model.onnx --domain box:-1,1 --direction 0 --proof proof.json",
    ),
    "geometry": (
        "relunorm geometry model.onnx --data train.csv --target y",
        "relunorm geometry model.onnx --data batch.npy -o depth.png",
    ),
    "papers": (
        "relunorm papers all --quick -o results",
        "relunorm papers dying -o results --full",
    ),
    "fit": (
        "relunorm fit table.csv --target y -o model.onnx",
        "relunorm fit table.csv --target kind --classify --hidden 32",
    ),
    "diagnose": (
        "relunorm diagnose model.onnx --data train.csv --target y",
        "relunorm diagnose model.onnx --data train.csv --domain data:train.csv --optimizer adam",
    ),
    "sweep": (
        "relunorm sweep job.py:train --grid lr=0.1,0.01 --store runs.sqlite",
        "relunorm sweep job.py:train --grid lr=0.1,0.01 --store runs.sqlite --export runs.csv -j 4",
    ),
    "warm-up": ("relunorm warm-up", "relunorm warm-up --json"),
    "dying map": (
        "relunorm dying map --gamma 1 --beta 0.9 -o map.png",
        "relunorm dying map --gamma 0.1 --eta 0.05 --json",
    ),
    "dying sweep": (
        "relunorm dying sweep --updates 3000",
        "relunorm dying sweep --data table.csv --target y --optimizer adam --gamma 0.1 --gamma 1",
    ),
}


def epilog(command: str) -> str:
    """The examples as the last part of a help page."""
    return "\n\n".join(["Examples:", *EXAMPLES[command]])
