#!/usr/bin/env bash
# Builds the archives of a release in build/release, with checksums and a bill of materials, for linux/amd64, linux/arm64
# and windows/amd64, or for the platforms in the arguments. An archive holds both programs, the ONNX Runtime library, the
# shipped configurations, README and the licences of all that is linked. It needs Linux on x86-64 and Python with pip. The
# same commit gives the same bytes. On a Mac, the archive of darwin is built by the workflow, with Apple's compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

fail() { echo "release: $*" >&2; exit 1; }

platforms=${*:-linux/amd64 linux/arm64 windows/amd64}
commit=$(git describe --always --dirty --abbrev=12 --exclude '*')
version=$(git describe --tags --exact-match 2>/dev/null || echo "$commit")
library=$(sed -n 's/^version=//p' tools/fetch-onnxruntime.sh)
kit=$PWD/build/release-kit
mkdir -p build
work=$(mktemp -d "$PWD/build/release-work.XXXX")
trap 'rm -rf "$work"' EXIT
out=$work/release # replaces build/release when all archives are complete
mkdir "$out"
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export GOFLAGS= CGO_ENABLED=1 TZ=UTC # a zip file holds local times

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

zig=$kit/ziglang/zig
python=$(command -v python3 || fail "Python 3 with pip is needed")
if ! cmp -s tools/release/requirements.txt "$kit/requirements.txt"; then
	rm -rf "$kit"
	echo "release: fetching the C compiler and notices (125 MB)"
	"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
		--implementation cp --python-version 3.12 --abi cp312 --abi none --platform manylinux_2_28_x86_64 \
		--platform manylinux_2_12_x86_64 --target "$kit" --requirement tools/release/requirements.txt ||
		fail "pip install failed: check the network and pip's settings"
	cp tools/release/requirements.txt "$kit/"
fi

# The licences of all modules that the programs link, of Go, of the C libraries that Zig links, of ONNX Runtime and of the
# charts on the page.
licences() {
	local to=$1 module dir file
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./tools/promptfed-net | sort -u |
		while read -r module dir; do
			mkdir -p "$to/$module"
			for file in "$dir"/[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]* "$dir"/COPYING* "$dir"/NOTICE* "$dir"/PATENTS*; do
				[ ! -f "$file" ] || cp "$file" "$to/$module/"
			done
			[ -n "$(ls -A "$to/$module")" ] || fail "$module has no licence file in $dir"
		done
	mkdir -p "$to/go" "$to/onnxruntime" "$to/uplot" "$to/zig"
	cp "$(go env GOROOT)/LICENSE" "$to/go/"
	cp "$kit/onnxruntime/LICENSE" "$kit/onnxruntime/ThirdPartyNotices.txt" "$to/onnxruntime/"
	cp tools/lab/page/assets/uplot/LICENSE "$to/uplot/"
	cp "$kit/ziglang/LICENSE" "$to/zig/"
}

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
		./tools/promptfed ./tools/promptfed-net
	ONNXRUNTIME_LIB='' tools/fetch-onnxruntime.sh "$folder" "$fetch" >/dev/null
	cp README.md LICENSE "$folder/"
	git archive HEAD -- ':(glob)configs/**/*.yaml' | tar -x -C "$folder"
	licences "$folder/licences"
	exe=; [ "$GOOS" = windows ] && exe=.exe
	GOOS='' GOARCH='' go run "$bom" bin -json -licenses -noserial -notimestamp -output "$out/$name.cdx.json" "$folder/promptfed-net$exe" 2>"$work/bom.log" ||
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
done
(cd "$out" && sha256sum -- promptfed-* >SHA256SUMS)
rm -rf build/release
mv "$out" build/release
ls -l build/release
