#!/usr/bin/env bash
# Puts Microsoft's ONNX Runtime library into bin/ (or the folder given as first argument), taken from the npm package
# onnxruntime-node with the reader's own npm settings. The package and the library inside it are pinned by sha512.
# Does nothing when the right library is there, or when ONNXRUNTIME_LIB names one.
set -euo pipefail

version=1.27.0
package_sum=404cc6c2bbcd060bf8b8f55d9db1ec3861b81ba4fdea676570523c68028f8cc53cc0e3e956870f5dbea4dd01a46996a0553bf61bd0679dba3a67725d5ebd5f43

fail() { echo "fetch-onnxruntime: $*" >&2; exit 1; }

case "$(uname -s)-$(uname -m)" in
Linux-x86_64)
	arch=x64
	library_sum=0a8661c53f3c1a1a9ba80b8f6fabdcef69364223973a36b35c04abed0e5991fde18ed1849705b0be7460e8ebf1fa0d29b247fd3a044d34c3f9a45959479e17b7
	;;
Linux-aarch64 | Linux-arm64)
	arch=arm64
	library_sum=48b4d0539b5891f22f6d8c562ebbf2f09879c0580eee28920a0fe293f2e601c34173747f686e588ac999b08b475a815770e495cb9dd4ce6d7f680852a2d71782
	;;
*)
	[ -n "${ONNXRUNTIME_LIB:-}" ] || fail "no library is pinned for $(uname -s) $(uname -m): install ONNX Runtime 1.24 or later and set ONNXRUNTIME_LIB to its library file"
	;;
esac

if [ -n "${ONNXRUNTIME_LIB:-}" ]; then
	[ -f "$ONNXRUNTIME_LIB" ] || fail "ONNXRUNTIME_LIB names $ONNXRUNTIME_LIB, which is no file: correct it or unset it"
	exit 0
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${1:-$root/bin}
library=$bin/libonnxruntime.so.1

has_sum() { [ -f "$1" ] && [ "$(sha512sum "$1" | cut -d' ' -f1)" = "$2" ]; }

if has_sum "$library" "$library_sum"; then
	exit 0
fi
command -v npm >/dev/null || fail "npm is needed to fetch onnxruntime-node $version: install Node.js, or set ONNXRUNTIME_LIB to an ONNX Runtime library of version 1.24 or later"

mkdir -p "$bin"
work=$(mktemp -d "$bin/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching ONNX Runtime $version ($arch)"
(cd "$work" && npm pack --silent "onnxruntime-node@$version" >/dev/null) ||
	fail "npm pack onnxruntime-node@$version failed: check the network and npm's settings, or set ONNXRUNTIME_LIB"
archive=$work/onnxruntime-node-$version.tgz
has_sum "$archive" "$package_sum" || fail "onnxruntime-node $version has another sha512 than the pinned one: the package was altered or cut short; nothing was installed"
tar -xzf "$archive" -C "$work" "package/bin/napi-v6/linux/$arch/libonnxruntime.so.1"
extracted=$work/package/bin/napi-v6/linux/$arch/libonnxruntime.so.1
has_sum "$extracted" "$library_sum" || fail "libonnxruntime.so.1 ($arch) of onnxruntime-node $version has another sha512 than the pinned one; nothing was installed"
touch "$extracted"
mv -f "$extracted" "$library"
echo "$library"
