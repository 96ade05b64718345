#!/usr/bin/env bash
# Runs the tests that compare with other programs, with finite differences and with numbers worked out by hand, on the
# provider cuda, in full float32 and with the tolerances of that provider (orttest.Tolerance), and the tests of signals and
# threads of sessions on it. If the provider does not run, the script prints the reason in one line and tests nothing.
#
#   tools/test-cuda.sh            builds and runs the tests
#   tools/test-cuda.sh build DIR  builds the tests into DIR
#   tools/test-cuda.sh run DIR    runs the tests in DIR, also on a machine without Go; they need the checkout
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# each line: packages, tests
list="./runtime/ort TestValuesStayOnTheDevice|TestWrongValues|TestSignalsReachGo|TestSessionsRunOnFewThreads
./runtime/ops TestGradients|TestWitnesses
./models/clip EqualPyTorch|EqualsPyTorch|TestPromptsEqualPlain|TestHandWrittenTexts|GiveTheSame|AsInputs
./models/bundle/converted TestSameAsPyTorchFromEveryFormat
./federation/methods/... TestTwoRoundsByHand
./federation/methods TestMethods/.*/^(gradients|messages|lost|trace|terms|aggregation)\$"

# build writes $1/PACKAGE/test for each package with such tests, and their names to $1/PACKAGE/pattern.
build() {
	while read -r packages pattern; do
		for package in $(go list "$packages"); do
			to=$1/${package#*/}
			go test -c -ldflags=-s -o "$to/test" "$package"
			if [ -x "$to/test" ] && [ -n "$("$to/test" -test.list "${pattern%%/*}")" ]; then
				echo "$pattern" >"$to/pattern"
			else
				rm -rf "$to/test"
			fi
		done
	done <<<"$list"
}

run() {
	local from failed=0
	from=$(cd "$1" && pwd)
	[ -n "${ONNXRUNTIME_LIB:-}" ] || export ONNXRUNTIME_LIB="$PWD/bin/cuda/libonnxruntime.so.1"
	export PROMPTFED_RUNTIME_PROVIDER=cuda
	for pattern in $(cd "$from" && find . -name pattern | sort -r); do
		package=${pattern%/pattern}
		echo "$package"
		(cd "$package" && "$from/$package/test" -test.timeout=10m -test.run "$(cat "$from/$pattern")") || failed=1
	done
	[ $failed = 0 ] || return 1
	echo "make test-cuda: all passed"
}

case ${1:-} in
build | run) "$1" "${2:?name a folder}" ;;
*)
	if ! why=$(bin/promptfed inspect --provider cuda 2>&1 >/dev/null); then
		echo "make test-cuda: nothing was tested: $(tail -n 1 <<<"${why#promptfed: }")"
		exit 0
	fi
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	build "$work"
	run "$work"
	;;
esac
