#!/usr/bin/env bash
# Downloads Microsoft's ONNX Runtime library into bin/ (or the folder in the first argument), from the npm package
# onnxruntime-node with the user's npm settings. The package and the library in it are pinned by sha512. The script does
# nothing if the right library is present, or if ONNXRUNTIME_LIB names one.
set -euo pipefail

# Measurements favour 1.30.0 over 1.24.3 and 1.27.0: matrix products are equally fast, its LayerNormalization is 2 and 10
# times as fast as in the other two, and its memory is constant over 5,000 sessions opened and closed. npm has no newer
# version. runtime/onnx/outside.go refuses the malformed graphs that only 1.30.1 handles.
version=1.30.0
package_sum=b7086cd42d82fc1164cf5c9ce4e634288536194aba0d444eee10f86f1e50d90cb79c0309c115d6f31537355733136f5503d96894b3987a9a03f1f8d318e7c8ab

fail() { echo "fetch-onnxruntime: $*" >&2; exit 1; }

# For each platform: the path of the library in the package, the name that promptfed looks for, and its sha512.
platform=${2:-$(uname -s)-$(uname -m)}
case "$platform" in
Linux-x86_64)
	inside=linux/x64/libonnxruntime.so.1 name=libonnxruntime.so.1
	library_sum=927fc128db9eedb9fae07dfa0574a4d53af91efa7e42c3192678910d32ae4fde46441c14fd42eaf0f925a2f71c1de4816d25720bd6c7579b60e56293cc862215
	;;
Linux-aarch64 | Linux-arm64)
	inside=linux/arm64/libonnxruntime.so.1 name=libonnxruntime.so.1
	library_sum=95be392538dfe3bd660207ebad503bcfbcbcd4e6162fb83d19f35d291a981560294914ce471d5251626122aff63cf201a215bb052d7cf5ea009fffcd57dbd366
	;;
Darwin-arm64)
	inside=darwin/arm64/libonnxruntime.1.dylib name=libonnxruntime.1.dylib
	library_sum=a2a1d51856a7fbe80815f363df95b1bb156baecd90ff51bb1fd70649da4a2070b958ddb4f7460bd94364e156d334f57840293501aa1505256153c2721428f782
	;;
MINGW64*-x86_64 | MSYS*-x86_64 | CYGWIN*-x86_64)
	inside=win32/x64/onnxruntime.dll name=onnxruntime.dll
	library_sum=01e218f193118dcfecd8ba018c416cb337eb7b5af480c7873a2aa21918c17ed180b10aada74fc3c4bd25cfe0550de435ce76e671bd30764440b7bed0e1935b1f
	;;
*)
	[ -n "${ONNXRUNTIME_LIB:-}" ] || fail "no library is pinned for $platform: install ONNX Runtime 1.24 or later and set ONNXRUNTIME_LIB to its library file"
	;;
esac

if [ -n "${ONNXRUNTIME_LIB:-}" ]; then
	[ -f "$ONNXRUNTIME_LIB" ] || fail "ONNXRUNTIME_LIB names $ONNXRUNTIME_LIB, which is no file: correct it or unset it"
	exit 0
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${1:-$root/bin}
library=$bin/$name

sum() { if command -v sha512sum >/dev/null; then sha512sum "$1"; else shasum -a 512 "$1"; fi | cut -d' ' -f1; }
has_sum() { [ -f "$1" ] && [ "$(sum "$1")" = "$2" ]; }

if has_sum "$library" "$library_sum"; then
	exit 0
fi
command -v npm >/dev/null || fail "npm is needed to fetch onnxruntime-node $version: install Node.js, or set ONNXRUNTIME_LIB to an ONNX Runtime library of version 1.24 or later"

mkdir -p "$bin"
work=$(mktemp -d "$bin/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching ONNX Runtime $version (${inside%/*})"
(cd "$work" && npm pack --silent "onnxruntime-node@$version" >/dev/null) ||
	fail "npm pack onnxruntime-node@$version failed: check the network and npm's settings, or set ONNXRUNTIME_LIB"
archive=$work/onnxruntime-node-$version.tgz
has_sum "$archive" "$package_sum" || fail "onnxruntime-node $version has another sha512 than the pinned one: the package was altered or cut short; nothing was installed"
tar -xzf "$archive" -C "$work" "package/bin/napi-v6/$inside"
extracted=$work/package/bin/napi-v6/$inside
has_sum "$extracted" "$library_sum" || fail "$inside of onnxruntime-node $version has another sha512 than the pinned one; nothing was installed"
touch "$extracted"
mv -f "$extracted" "$library"
echo "$library"
