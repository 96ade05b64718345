#!/usr/bin/env bash
# Downloads Microsoft's GPU build of ONNX Runtime (for CUDA 13) into bin/cuda/ (or the folder in the first argument), from
# the Python package onnxruntime-gpu with the user's pip settings. The package is pinned by sha256. The script does nothing
# if the right files are present. It does not download CUDA, cuDNN and the driver: `promptfed inspect --provider cuda`
# lists the libraries of these that are needed.
set -euo pipefail

version=1.31.0
package_sum=b52998a075de27ff30e46a125001822541fa5b03f5d31398ab0e50789d80c51c
package_size=256 # MB
libraries="libonnxruntime.so.1:libonnxruntime.so.$version libonnxruntime_providers_cuda.so libonnxruntime_providers_shared.so"
sums="e4523eb2bbe9caf1a12e0aa9205909529193c05bf019e291d0edf75429116d39
4d52a8f54e74f5cc276cf03dcdeb7b4d5f6e517ea17de38e136283027b5b1c9a
086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d"

fail() { echo "fetch-onnxruntime-cuda: $*" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
	fail "no GPU build is pinned for $(uname -s) $(uname -m): install one of ONNX Runtime 1.24 or later and set ONNXRUNTIME_LIB to its library file"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=${1:-$root/bin/cuda}

# right checks that a folder contains the pinned libraries.
right() {
	for name in $libraries; do
		[ -f "$1/${name%%:*}" ] || return 1
	done
	[ "$(cd "$1" && for name in $libraries; do sha256sum "${name%%:*}" | cut -d' ' -f1; done)" = "$sums" ]
}

if right "$place"; then
	exit 0
fi
python=$(command -v python3 || command -v python || true)
{ [ -n "$python" ] && "$python" -m pip --version >/dev/null 2>&1; } ||
	fail "Python with pip is needed to fetch onnxruntime-gpu $version, and for nothing else: install it (python3-pip), or unpack the wheel of onnxruntime-gpu elsewhere and set ONNXRUNTIME_LIB to its libonnxruntime.so file"

mkdir -p "$(dirname "$place")"
work=$(mktemp -d "$(dirname "$place")/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching ONNX Runtime $version for CUDA 13 ($package_size MB)"
echo "onnxruntime-gpu==$version --hash=sha256:$package_sum" >"$work/requirements.txt"
# pip checks the sum before it keeps the file. Any version of Python works, because only the libraries are used.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
	--implementation cp --python-version 3.12 --abi cp312 --platform manylinux_2_28_x86_64 \
	--dest "$work" --requirement "$work/requirements.txt" ||
	fail "pip download onnxruntime-gpu==$version failed: check the network and pip's settings, or set ONNXRUNTIME_LIB"
new=$work/new
mkdir "$new"
"$python" - "$work"/*.whl "$new" "LICENSE ThirdPartyNotices.txt $libraries" <<'EOT' || fail "the wheel of onnxruntime-gpu $version could not be unpacked"
import shutil, sys, zipfile
wheel, to, names = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    for name in names.split():
        name, _, packed = name.partition(":")
        folder = "capi/" if ".so" in name else ""
        with z.open("onnxruntime/" + folder + (packed or name)) as a, open(to + "/" + name, "wb") as b:
            shutil.copyfileobj(a, b)
EOT
right "$new" || fail "the libraries of onnxruntime-gpu $version have other sums than the pinned ones; nothing was installed"
chmod 755 "$new"/*.so*
mkdir -p "$place"
mv -f "$new"/* "$place/" # beside other files of a folder that the caller names
echo "$place/libonnxruntime.so.1"
