#!/bin/bash
# VNN-COMP, step 2: get ready for one instance. Arguments: v1 CATEGORY ONNX VNNLIB.
# Nothing about the instance is computed ahead: both files are there, the tool starts, and its search
# is compiled, which takes a minute where the installation could not keep what it compiled.
set -euo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version string v1, got '${1:-}'" >&2; exit 1; }
[ $# -ge 4 ] || { echo "expected v1 CATEGORY ONNX VNNLIB" >&2; exit 1; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for file in "$3" "$4"; do
    [ -f "$file" ] || { echo "$file does not exist" >&2; exit 1; }
done
"$root/.venv/bin/relunorm" --version
"$root/.venv/bin/python" -c "from relunorm.search.engine import warm_up; warm_up()"
