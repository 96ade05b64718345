#!/usr/bin/env bash
# Builds the wheel of this machine's platform in build/wheel: tools/python with the program and the library in bin/, and
# all licences. build.sh builds the wheels of a release. The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tools/release/parts.sh
GOOS=$(go env GOOS) GOARCH=$(go env GOARCH)
kit wheel-kit tools/python/build.txt
folder=$work/files
mkdir "$folder"
cp LICENSE bin/promptfed bin/*onnxruntime.* "$folder/"
licences "$folder/licences"
rm -rf build/wheel
wheel "$folder" "$PWD/build/wheel"
