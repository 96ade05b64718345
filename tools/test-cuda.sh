#!/usr/bin/env bash
# Runs the tests that compare with other programs, with finite differences and with numbers worked out by hand, on the
# provider cuda, in full float32 and with the tolerances of that provider (orttest.Tolerance), and the tests of signals and
# threads of sessions on it. If the provider does not run, the script prints the reason in one line and tests nothing.
#
#   tools/test-cuda.sh                    builds and runs the tests
#   tools/test-cuda.sh build TO           builds the tests and what they read into the folder or the .tar.xz archive TO
#   tools/test-cuda.sh run FROM [JSON]    runs the tests of such a folder or archive, also on a machine without Go
#
# An archive holds this script too, as tools/test-cuda.sh. The test of the device's memory runs first and alone, for at most a
# minute; then at most four processes run at once. All end within
# TEST_CUDA_SECONDS (280), the first ones within two thirds of that; what did not finish counts as failed. The file JSON
# (build/test-cuda.json) gets the output of test2json. PROMPTFED_RUNTIME_PROVIDER names another provider.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Each line: packages, tests. After the one that runs alone, short ones come first, so that they run in any case; the long one
# runs in four parts.
suite=gradients\|trace
list="./federation/experiment TestDeviceMemoryStaysFlat
./federation/methods/... TestTwoRoundsByHand
./runtime/ops TestGradients|TestWitnesses
./runtime/ort TestKernelsOnDevice|Captured|TestFreeMemory|TestValuesStayOnTheDevice|TestWrongValues|TestSignalsReachGo|TestSessionsRunOnFewThreads
./federation/data/features TestDeviceFeatures|TestDeviceViews|TestExportedTowerOnDevice
./models/bundle/converted TestSameAsPyTorchFromEveryFormat
./models/clip EqualPyTorch|EqualsPyTorch|TestPromptsEqualPlain|TestHandWrittenTexts|GiveTheSame|AsInputs
./federation/methods ^TestMethods\$/^[^p].*[+]/^($suite)\$
./federation/methods ^TestMethods\$/^[^p][^+]*\$/^($suite)\$
./federation/methods ^TestMethods\$/^p.*[+]/^($suite)\$
./federation/methods ^TestMethods\$/^p[^+]*\$/^($suite)\$"

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

# build writes bin/NAME.test for each package with such tests, the testdata of all packages, and the file tests: in each
# line a package, the name of its program, and tests.
build() {
	local to=$1 packages pattern package dir
	case $to in *.tar.xz) to=$work/promptfed-cuda-tests ;; esac
	rm -rf "$to/bin"
	mkdir -p "$to/bin" "$to/tools"
	while read -r packages pattern; do
		go list -f '{{.ImportPath}} {{.Dir}}' "$packages" | while read -r package dir; do
			sed -n 's/^func \(Test[^(]*\)(.*/\1/p' "$dir"/*_test.go 2>/dev/null | grep -qE "${pattern%%/*}" || continue
			echo "${package#*/} ${package##*/} $pattern"
		done
	done <<<"$list" >"$to/tests"
	# shellcheck disable=SC2046
	go test -c -trimpath -buildvcs=false -ldflags='-s -w' -o "$to/bin/" $(cut -d' ' -f1 "$to/tests" | sort -u | sed 's,^,./,')
	go build -trimpath -buildvcs=false -ldflags='-s -w' -o "$to/bin/" cmd/test2json
	cp tools/test-cuda.sh "$to/tools/"
	find runtime models federation -path '*/testdata/*' -type f -print0 | tar -cf - --null -T - | tar -xf - -C "$to"
	if [ "$to" != "$1" ]; then
		# The programs have much in common, further apart than xz looks by itself.
		tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
			--mtime="@${SOURCE_DATE_EPOCH:-0}" -cf - "${to##*/}" |
			xz --lzma2=preset=3,dict=192MiB >"$1"
	fi
	echo "test-cuda: $(ls "$to/bin"/*.test | wc -l) programs, $(du -sm "$to" | cut -f1) MB, in $1: $(du -sm "$1" | cut -f1) MB"
}

# one runs the tests in line $1 of the file tests and prints a line about them.
one() {
	local package name pattern what began=$SECONDS left=$((deadline - SECONDS)) most=$((limit * 2 / 3)) code=0
	read -r package name pattern < <(sed -n "$1p" tests)
	what=$package
	case $pattern in */*/*) what+=" ${pattern%/*}" ;; esac
	if [ $left -lt 10 ]; then
		printf '{"Action":"%s","Package":"promptfed/%s"}\n' start "$package" fail "$package" >"$work/$1.json"
		echo "FAIL $what: not started, no time was left"
		return 1
	fi
	[ "$1" -gt $((lines - 4)) ] || [ $left -lt $most ] || left=$most # one that hangs leaves time for those that wait
	[ "$1" != 1 ] || [ $left -lt 60 ] || left=60
	mkdir -p "$package"
	# Go's own limit names the tests that are running; the other one ends a process that hangs outside Go.
	(cd "$package" && exec timeout -k 2 $((left - 2)) "$from/bin/$name.test" -test.v=test2json -test.timeout=$((left - 5))s \
		-test.run "$pattern" 2>&1) | bin/test2json -t -p "promptfed/$package" >"$work/$1.json" || true
	report "$what" $((SECONDS - began)) <"$work/$1.json" >"$work/$1.txt" || code=1
	cat "$work/$1.txt"
	return $code
}

# report prints a line about the output of test2json, and the failed tests with the first lines that they print.
report() {
	awk -v what="$1" -v seconds="$2" '
	function field(name) {
		if (!match($0, "\"" name "\":\"([^\"\\\\]|\\\\.)*\"")) return ""
		return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5)
	}
	function plain(text) {
		gsub(/\\n$/, "", text); gsub(/\\t/, "  ", text); gsub(/\\"/, "\"", text); gsub(/\\u003c/, "<", text)
		gsub(/\\u003e/, ">", text); gsub(/\\u0026/, "\\&", text); gsub(/\\u0016/, "", text)
		return substr(text, 1, 300)
	}
	{ action = field("Action"); test = field("Test") }
	action == "run" { open[test] = 1; parent = test; while (sub("/[^/]*$", "", parent)) inner[parent] = 1 }
	action == "output" && lines[test] < 3 {
		text = plain(field("Output"))
		if (text !~ /^(=== | *--- |PASS$|FAIL$|exit status)/ && text ~ /[^ ]/) { lines[test]++; said[test] = said[test] "\n      " text }
	}
	action ~ /^(pass|fail|skip)$/ {
		if (test == "") { passed = action == "pass"; next }
		delete open[test]
		if (action == "fail") failed[++n] = test
		if (!(test in inner)) count[action]++
	}
	END {
		ok = passed && n == 0
		printf "%s %s: %d passed, %d failed, %d skipped, %d s\n", ok ? "ok  " : "FAIL", what, count["pass"], count["fail"], count["skip"], seconds
		if (!ok && said[""] != "") print "    the program printed:" said[""]
		for (i = 1; i <= n; i++) {
			if (said[failed[i]] == "" && failed[i] in inner) continue
			if (++shown <= 10) print "    failed: " plain(failed[i]) said[failed[i]]
		}
		if (shown > 10) print "    and " shown - 10 " more that failed"
		for (test in open) if (!(test in inner) && ++late <= 5) print "    not finished: " plain(test) said[test]
		if (late > 5) print "    and " late - 5 " more that did not finish"
		exit !ok
	}'
}

run() {
	local began=$SECONDS failed=0 json=${2:-$PWD/build/test-cuda.json} i
	export PROMPTFED_RUNTIME_PROVIDER=${PROMPTFED_RUNTIME_PROVIDER:-cuda}
	if [ -z "${ONNXRUNTIME_LIB:-}" ]; then
		ONNXRUNTIME_LIB=$PWD/bin/libonnxruntime.so.1
		[ "$PROMPTFED_RUNTIME_PROVIDER" = cpu ] || ONNXRUNTIME_LIB=$PWD/bin/cuda/libonnxruntime.so.1
		export ONNXRUNTIME_LIB
	fi
	mkdir -p "$(dirname "$json")"
	json=$(cd "$(dirname "$json")" && pwd)/${json##*/}
	from=$1
	case $1 in
	*.tar.xz)
		tar -C "$work" -xJf "$1"
		from=$work/promptfed-cuda-tests
		;;
	esac
	from=$(cd "$from" && pwd)
	cd "$from"
	limit=${TEST_CUDA_SECONDS:-280} deadline=$((began + limit))
	lines=$(wc -l <tests)
	one 1 || failed=1
	for i in $(seq 2 "$lines"); do
		[ "$(jobs -rp | wc -l)" -lt 4 ] || wait -n || failed=1
		one "$i" &
	done
	while [ -n "$(jobs -p)" ]; do wait -n || failed=1; done
	for i in $(seq "$lines"); do cat "$work/$i.json"; done >"$json"
	echo "make test-cuda: $([ $failed = 0 ] && echo "all passed" || echo failed), $((SECONDS - began)) s on $PROMPTFED_RUNTIME_PROVIDER, $json"
	return $failed
}

case ${1:-} in
build | run) "$1" "${2:?name a folder or a .tar.xz archive}" "${@:3}" ;;
*)
	if ! why=$(bin/promptfed inspect --provider cuda 2>&1 >/dev/null); then
		echo "make test-cuda: nothing was tested: $(tail -n 1 <<<"${why#promptfed: }")"
		exit 0
	fi
	build "$work/tests"
	run "$work/tests"
	;;
esac
