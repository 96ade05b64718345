#!/usr/bin/env bash
# Builds the archives and wheels of a release in build/release, with checksums and bills of materials, for linux/amd64,
# linux/arm64 and windows/amd64, or for the platforms in the arguments. An archive holds the program, the ONNX Runtime
# library, the shipped configurations, README and the licences of all that is linked. One more archive holds the tests of
# make test-cuda, for machines without Go (tools/test-cuda.sh run). It needs Linux on x86-64 and Python
# with pip. The same commit gives the same bytes. On a Mac, the workflow builds that of darwin, with Apple's compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# shellcheck source=tools/release/parts.sh
. tools/release/parts.sh
if ! tools/soak.sh check; then
	[ "$version" = "$commit" ] || fail "$version is a release: it needs a soak of its code"
	echo "release: $commit has no tag, so the archives are built without one" >&2
fi
bom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

platforms=${*:-linux/amd64 linux/arm64 windows/amd64}
library=$(sed -n 's/^version=//p' tools/fetch-onnxruntime.sh)
out=$work/release # replaces build/release when all archives are complete
mkdir "$out"
export GOFLAGS= CGO_ENABLED=1

# Sets cc and fetch, the name of the platform of the library, for a platform.
choose() {
	case $1 in
	linux/amd64) cc="$zig cc -target x86_64-linux-gnu.2.28" fetch=Linux-x86_64 ;;
	linux/arm64) cc="$zig cc -target aarch64-linux-gnu.2.28" fetch=Linux-aarch64 ;;
	windows/amd64) cc="$zig cc -target x86_64-windows-gnu" fetch=MINGW64-x86_64 ;;
	darwin/arm64) cc=cc fetch=Darwin-arm64 ;;
	*) fail "$1 is no platform of a release; use linux/amd64, linux/arm64, windows/amd64, or darwin/arm64 on a Mac" ;;
	esac
}

kit release-kit tools/release/requirements.txt
kit wheel-kit tools/python/build.txt

# Adds ONNX Runtime, which is no module of Go, to a bill of materials.
complete() {
	"$python" - "$1" "$library" <<'EOT'
import json, sys
path, version = sys.argv[1:]
package = "pkg:npm/onnxruntime-node@" + version
bom = json.load(open(path))
bom["components"].append({"bom-ref": package, "type": "library", "name": "onnxruntime", "version": version, "purl": package,
                          "licenses": [{"license": {"id": "MIT"}}]})
json.dump(bom, open(path, "w"), indent=1)
EOT
}

for platform in $platforms; do
	choose "$platform"
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	name=promptfed-$version-$GOOS-$GOARCH
	folder=$work/$name
	mkdir -p "$folder"
	echo "release: $platform"
	CC=$cc go build -trimpath -buildvcs=false -ldflags "-s -w -X promptfed/runtime/version.stamp=$commit" -o "$folder/" \
		./tools/promptfed
	ONNXRUNTIME_LIB='' tools/fetch-onnxruntime.sh "$folder" "$fetch" >/dev/null
	cp README.md LICENSE "$folder/"
	licences "$folder/licences"
	mkdir -p "$folder/licences/zig"
	cp "$kits/release-kit/ziglang/LICENSE" "$folder/licences/zig/"
	git archive HEAD -- ':(glob)configs/**/*.yaml' | tar -x -C "$folder"
	exe=; [ "$GOOS" = windows ] && exe=.exe
	GOOS='' GOARCH='' go run "$bom" bin -json -licenses -noserial -notimestamp -output "$out/$name.cdx.json" "$folder/promptfed$exe" 2>"$work/bom.log" ||
		{ cat "$work/bom.log" >&2; fail "the bill of materials of $platform failed"; }
	complete "$out/$name.cdx.json"
	chmod -R u=rwX,go=rX "$folder" # not those of this checkout and of Go's module cache
	find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	if [ "$GOOS" = windows ]; then
		(cd "$work" && find "$name" -type f | LC_ALL=C sort | "$python" -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as z:
    for line in sys.stdin:
        z.write(line.strip())' "$out/$name.zip")
	else
		tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" |
			gzip -9n >"$out/$name.tar.gz"
	fi
	[ "$platform" != linux/amd64 ] || CC=$cc tools/test-cuda.sh build "$out/promptfed-$version-linux-amd64-cuda-tests.tar.xz"
	wheel "$folder" "$out"
done
(cd "$out" && sha256sum -- promptfed-* >SHA256SUMS)
rm -rf build/release
mv "$out" build/release
ls -l build/release
