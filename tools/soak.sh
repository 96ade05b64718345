#!/usr/bin/env bash
# Runs what takes too long for .ci/run, one step after the other, and writes tools/release/soak.txt: the digest of the
# product's code, and a line for each step. build.sh makes a release only of code that passed here. Commit the file.
#
#	tools/soak.sh        all steps; their output is in build/soak
#	tools/soak.sh check  fails if the last soak has not passed, or was of other code
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

result=tools/release/soak.txt

fail() { echo "soak: $*" >&2; exit 1; }

# Hashes the files that the product is built of: no tests, their helpers and checks, and not the result.
code() {
	git ls-tree -r HEAD -- runtime models federation configs tools go.mod go.sum |
		grep -v -e '_test\.go$' -e '/testdata/' -e '/[a-z]*test/' -e '\stools/\(soak\.sh\|checks/\|golden/\|e2e/\)' -e "$result\$" |
		sha256sum | cut -c 1-16
}

if [ "${1-}" = check ]; then
	[ -f "$result" ] || fail "$result is missing: run make soak, and commit it"
	[ "$(sed -n 's/^code //p' "$result")" = "$(code)" ] ||
		fail "$result is of other code than $(git rev-parse --short HEAD): run make soak, and commit the file"
	grep -q '^soak passed' "$result" || fail "the last soak failed, see $result: mend the fault and run make soak"
	exit
fi

[ -z "$(git status --porcelain --untracked-files=no)" ] || fail "the tree has changes: commit them first"
out=build/soak
rm -rf "$out"
mkdir -p "$out"
lines=$out/lines
failed=0
{
	echo "code $(code)"
	echo "commit $(git rev-parse --short=12 HEAD), $(date -u +%F), $(nproc) cores, $(go env GOOS)/$(go env GOARCH)"
} >"$lines"

# Runs a step and adds its line: step NAME PATTERN COMMAND..., where PATTERN finds the last line that tells the result.
# Of a step that failed, the line names a test that failed or was skipped.
step() {
	local name=$1 pattern=$2 began told verdict=passed
	shift 2
	began=$(date +%s)
	echo "soak: $name, with output in $out/$name.log"
	"$@" >"$out/$name.log" 2>&1 || verdict=failed failed=1
	[ $verdict = passed ] || pattern='^\(    \)\?--- \(FAIL\|SKIP\)'
	told=$(grep -e "$pattern" "$out/$name.log" | tail -n 1 || true)
	echo "$name $verdict, $(($(date +%s) - began)) s: $told" | tee -a "$lines"
}

# Runs tests, and fails if one of them fails or is skipped, or if there is none. (`set -e` does not hold where step calls it.)
tests() {
	go test -count=1 -timeout 5h -v "$@" >"$out/tests" 2>&1 || { cat "$out/tests"; return 1; }
	cat "$out/tests"
	! grep -q '^\(    \)\?--- SKIP' "$out/tests" && grep -q -e '--- PASS' "$out/tests" &&
		echo "$(grep -c -e '--- PASS' "$out/tests") tests passed"
}

export PROMPTFED_TEST_SOAK=1 PROMPTFED_TEST_CHAOS_RUNS=30 PROMPTFED_TEST_ABSURD_STEP=197
# The race detector allocates, and TestHeaderBombs counts bytes.
step races '^ok' env -u PROMPTFED_TEST_SOAK go test -race -count=1 -skip 'TestHeaderBombs$' \
	./federation/engine/... ./federation/experiment/... ./federation/net/... ./federation/privacy/... ./runtime/...
step faults 'tests passed$' tests -run 'TestChaos$' ./tools/e2e/chaos
step floods 'tests passed$' tests -run 'Flood|Flickering|RefilledConnections|FewFiles|TestMemory' ./tools/e2e/attack
step methods 'tests passed$' tests -run 'TestMethods$|TestStacks$' ./federation/methods
step models 'tests passed$' tests -run 'TestArchitectures$|TestFullSizeResNetEqualsPyTorch$|TestExportIsPredict$|TestAbsurdModels$|TestStepMemory$' \
	./models/clip ./models/bundle/converted ./federation/experiment/inference ./tools/lab/bench ./tools/e2e/program
step site 'tests passed$' tests -run 'TestSite$' ./tools/gendocs
step flower '^make flower' make flower
export PATH=$PWD/build/flower/bin:$PATH PROMPTFED_TEST_TORCH=$PWD/build/flower/bin/python
step pytorch 'tests passed$' tests -run 'TestComparePyTorch$|TestCompareSimulator$/flower$' ./tools/lab/bench

if [ $failed = 0 ]; then echo "soak passed"; else echo "soak failed"; fi >>"$lines"
cp "$lines" "$result"
cat "$result"
exit $failed
