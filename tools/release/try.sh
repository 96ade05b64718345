#!/usr/bin/env bash
# Runs the archives in build/release, or those in the arguments, each unpacked into an empty folder with an empty cache: the
# version, doctor, a small run, its report, and status. linux/arm64 runs under QEMU's user emulation (Debian's
# qemu-user, libc6-arm64-cross and libstdc++6-arm64-cross), windows/amd64 under Wine (Debian's wine64). An archive whose
# emulator is missing is named as not tried. With --tests first, the tests of runtime/ run on linux/arm64 too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

root=$PWD
zig=$root/build/release-kit/ziglang/zig
work=$(mktemp -d)
trap '[ ! -d "$work/wine" ] || wineserver -k -w 2>/dev/null || sleep 2; rm -rf "$work"' EXIT
tests=
if [ "${1:-}" = --tests ]; then
	tests=1
	shift
fi
shopt -s nullglob
[ $# -gt 0 ] || set -- build/release/*.tar.gz build/release/*.zip
shopt -u nullglob
[ $# -gt 0 ] || { echo "try: build/release has no archives: make release builds them" >&2; exit 1; }
failed=0
run="run configs/demo/3-promptfl.yaml --out one --rounds 2 --clients 2 --set partition.kind=iid --set backbones=[tiny-vit-b32]
	--set data.generator.train=8 --set data.generator.test=4 --set data.generator.classes=[circle,square,star,house]"

# A file system root for emulated programs: libraries, and the description of a processor that ONNX Runtime reads. The
# emulator has that of this machine.
sysroot=$work/arm64
if command -v qemu-aarch64 >/dev/null && [ -d /usr/aarch64-linux-gnu/lib ]; then
	mkdir -p "$sysroot/proc"
	cp -a /usr/aarch64-linux-gnu/lib "$sysroot/"
	for i in $(seq 0 $(($(nproc) - 1))); do
		printf 'processor\t: %d\nFeatures\t: fp asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm asimddp\n' "$i"
		printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n'
	done >"$sysroot/proc/cpuinfo"
fi

for archive in "$@"; do
	[ -f "$archive" ] || { echo "try: $archive is no file" >&2; exit 1; }
	name=${archive##*/promptfed-} exe=
	case $name in
	*-linux-amd64.tar.gz) start= ;;
	*-linux-arm64.tar.gz)
		start="qemu-aarch64 -L $sysroot"
		[ -d "$sysroot" ] || { echo "$name: not tried, qemu-user or libc6-arm64-cross is missing"; continue; }
		;;
	*-windows-amd64.zip)
		start=wine exe=.exe
		command -v wine >/dev/null || { echo "$name: not tried, wine64 is missing"; continue; }
		export WINEDEBUG=-all WINEPREFIX=$work/wine
		;;
	*) echo "$name: not tried, this machine runs no such program"; continue ;;
	esac
	folder=$work/$name
	mkdir "$folder"
	case $archive in
	*.zip) python3 -m zipfile -e "$archive" "$folder" ;;
	*) tar -xzf "$archive" -C "$folder" ;;
	esac
	cd "$folder"/*/
	if [ -n "$exe" ]; then
		wine wineboot --init >/dev/null 2>&1
		"$zig" cc -target x86_64-windows-gnu -shared -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" \
			"$root/tools/release/prng.c" -ladvapi32
	fi
	export XDG_CACHE_HOME=$folder/cache
	for words in --version doctor "$run" "report one" "status https://127.0.0.1:9"; do
		code=0 said=
		case $words in status*) said="cannot connect" ;; esac # there is no server
		# shellcheck disable=SC2086
		$start ./promptfed$exe $words >log 2>&1 || code=$?
		if [ -z "$said" ] && [ $code = 0 ] || [ -n "$said" ] && grep -q "$said" log; then
			echo "$name: ${words%% *} passed: $(grep -v DXGI log | tail -n 1)"
		else
			echo "$name: ${words%% *} failed, exit $code:"
			tail -n 20 log
			failed=1
		fi
	done
	cd "$root"
done

if [ -n "$tests" ] && [ -d "$sysroot" ]; then
	mkdir "$work/lib"
	ONNXRUNTIME_LIB='' tools/fetch-onnxruntime.sh "$work/lib" Linux-aarch64 >/dev/null
	ONNXRUNTIME_LIB=$work/lib/libonnxruntime.so.1 GOARCH=arm64 CGO_ENABLED=1 CC="$zig cc -target aarch64-linux-gnu.2.28" \
		go test -short -timeout 60m -exec "qemu-aarch64 -L $sysroot" ./runtime/... || failed=1
fi
exit $failed
