#!/bin/bash
# VNN-COMP, step 1: install relunorm once. Argument: v1.
set -euo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version string v1, got '${1:-}'" >&2; exit 1; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python3 -m venv "$root/.venv"
"$root/.venv/bin/pip" install --constraint "$root/constraints.txt" "$root[onnx]"
# Compile the search now: instances are timed.
"$root/.venv/bin/python" -c "from relunorm.search.engine import warm_up; warm_up()"
