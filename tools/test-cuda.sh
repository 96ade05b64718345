#!/usr/bin/env bash
# Runs the tests that compare with other programs, with finite differences and with numbers worked out by hand, on the
# provider cuda, in full float32 and with the tolerances of that provider (orttest.Tolerance). If the provider does not run,
# the script prints the reason in one line and tests nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! why=$(bin/promptfed inspect --provider cuda 2>&1 >/dev/null); then
	echo "make test-cuda: nothing was tested: $(tail -n 1 <<<"${why#promptfed: }")"
	exit 0
fi
[ -n "${ONNXRUNTIME_LIB:-}" ] || export ONNXRUNTIME_LIB="$PWD/bin/cuda/libonnxruntime.so.1"
export PROMPTFED_RUNTIME_PROVIDER=cuda
go test -count=1 ./runtime/ort -run 'TestValuesStayOnTheDevice|TestWrongValues'
go test -count=1 ./runtime/ops -run 'TestGradients|TestWitnesses'
go test -count=1 ./models/clip -run 'EqualPyTorch|EqualsPyTorch|TestPromptsEqualPlain|TestHandWrittenTexts|GiveTheSame|AsInputs'
go test -count=1 ./models/bundle/converted -run 'TestSameAsPyTorchFromEveryFormat'
go test -count=1 ./federation/methods/... -run 'TestMethods/.*/^(gradients|messages|lost|trace|terms|aggregation)$|TestTwoRoundsByHand'
echo "make test-cuda: all passed"
