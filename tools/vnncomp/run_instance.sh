#!/bin/bash
# VNN-COMP, step 3: run one instance. Arguments: v1 CATEGORY ONNX VNNLIB RESULT SECONDS.
set -uo pipefail
[ "${1:-}" = v1 ] || { echo "expected the version string v1, got '${1:-}'" >&2; exit 1; }
[ $# -ge 6 ] || { echo "expected v1 CATEGORY ONNX VNNLIB RESULT SECONDS" >&2; exit 1; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
model=$3
if [ "${model%.gz}" != "$model" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    model=$folder/model.onnx
    gunzip --stdout "$3" > "$model" || exit 1
fi
rm -f "$5"
"$root/.venv/bin/relunorm" check "$model" "$4" --time-limit "$6" --result "$5" --jobs "$(nproc)"
code=$?
# 0, 1 and 3 are verdicts; anything else is an input that is not supported.
case $code in
    0 | 1 | 3) exit 0 ;;
    *) echo unknown > "$5"; exit 0 ;;
esac
