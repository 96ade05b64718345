# What the archives of a release and the wheels share. build.sh and wheel.sh read it, in the root of the repository.

fail() { echo "release: $*" >&2; exit 1; }

commit=$(git describe --always --dirty --abbrev=12 --exclude '*')
version=$(git describe --tags --exact-match --dirty 2>/dev/null || echo "$commit")
export SOURCE_DATE_EPOCH TZ=UTC # a zip file holds local times
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
python=$(command -v python3 || fail "Python 3.11 or later with pip is needed")
kits=$PWD/build
zig=$kits/release-kit/ziglang/zig
mkdir -p build
work=$(mktemp -d "$PWD/build/release-work.XXXX")
trap 'rm -rf "$work"' EXIT

# Installs the packages of a file of requirements into a folder below build/: kit NAME FILE. Programs are those for Linux
# on x86-64.
kit() {
	local to=$kits/$1
	! cmp -s "$2" "$to/requirements.txt" || return 0
	rm -rf "$to"
	echo "release: fetching the packages of $2"
	"$python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
		--implementation cp --python-version 3.12 --abi cp312 --abi none --platform manylinux_2_28_x86_64 \
		--platform manylinux_2_12_x86_64 --target "$to" --requirement "$2" ||
		fail "pip install failed: check the network and pip's settings"
	cp "$2" "$to/requirements.txt"
}

# Copies the licences of all modules that the program links, of Go, of ONNX Runtime and of the charts on the page:
# licences FOLDER
licences() {
	local to=$1 module dir file
	go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./tools/promptfed | sort -u |
		while read -r module dir; do
			mkdir -p "$to/$module"
			for file in "$dir"/[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]* "$dir"/COPYING* "$dir"/NOTICE* "$dir"/PATENTS*; do
				[ ! -f "$file" ] || cp "$file" "$to/$module/"
			done
			[ -n "$(ls -A "$to/$module")" ] || fail "$module has no licence file in $dir"
		done
	mkdir -p "$to/go" "$to/onnxruntime" "$to/uplot"
	cp "$(go env GOROOT)/LICENSE" "$to/go/"
	cp "$kits/wheel-kit/onnxruntime/LICENSE" "$kits/wheel-kit/onnxruntime/ThirdPartyNotices.txt" "$to/onnxruntime/"
	cp tools/lab/page/assets/uplot/LICENSE "$to/uplot/"
}

# Makes the wheel of a folder with the programs, the library, LICENSE and licences/, for $GOOS and $GOARCH:
# wheel FOLDER OUT
wheel() {
	local from=$1 project=$work/wheel tag
	rm -rf "$project"
	mkdir -p "$project/scripts" "$project/lib/promptfed"
	git ls-files tools/python | tar -cf - --files-from - | tar -xf - -C "$project" --strip-components=2
	cp -R "$from"/LICENSE "$from"/licences "$project/"
	cp "$from"/promptfed* "$project/scripts/"
	case $GOOS/$GOARCH in
	linux/*)
		# The newest glibc of which the programs or the library need a function.
		tag=manylinux_$(cat "$from"/promptfed* "$from"/libonnxruntime* | LC_ALL=C grep -aoE 'GLIBC_[0-9]+\.[0-9]+' |
			sort -Vu | sed -n '$s/GLIBC_//p' | tr . _)
		case $GOARCH in amd64) tag=${tag}_x86_64 ;; arm64) tag=${tag}_aarch64 ;; *) fail "no wheel for $GOARCH" ;; esac
		cp "$from"/libonnxruntime* "$project/lib/promptfed/"
		;;
	darwin/arm64)
		tag=macosx_14_0_arm64 # as the library
		cp "$from"/libonnxruntime* "$project/lib/promptfed/"
		;;
	windows/amd64)
		tag=win_amd64
		cp "$from/onnxruntime.dll" "$project/scripts/" # folders of scripts have different places there
		;;
	*) fail "no wheel for $GOOS/$GOARCH" ;;
	esac
	case $version in
	v[0-9]*) export WHEEL_VERSION=${version#v} ;;
	*) export WHEEL_VERSION=0.dev0+g$(tr - . <<<"$commit") ;;
	esac
	export WHEEL_TAG=py3-none-$tag
	(cd "$project" && PYTHONPATH=$kits/wheel-kit "$python" -m hatchling build -t wheel -d "$2") >"$work/wheel.log" 2>&1 ||
		{ cat "$work/wheel.log" >&2; fail "the wheel of $GOOS/$GOARCH failed"; }
	[ "$("$python" -m zipfile -l "$2"/*"$tag.whl" | grep -c dist-info/licenses/)" -eq \
		"$(cd "$project" && find LICENSE licences -type f | wc -l)" ] || fail "$tag: the wheel lacks licences"
}
