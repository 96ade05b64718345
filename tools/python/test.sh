#!/usr/bin/env bash
# Makes a virtual environment in build/python with the packages of tests.txt and the wheel of this machine, and runs the
# tests in it. Without a Python that can do so, it says so and succeeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
	echo "make python: not run: it needs python3, 3.11 or later, with venv (Debian's python3-venv)"
	exit 0
}
venv=$PWD/build/python
if ! cmp -s tools/python/tests.txt "$venv/tests.txt"; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
		--requirement tools/python/tests.txt
	cp tools/python/tests.txt "$venv/"
fi
export PATH=$venv/bin:$PATH
# PyTorch of this machine, if there is one for this Python: what the venv has of its own comes first.
site="import pathlib, sys, torch; print(pathlib.Path(torch.__file__).parents[1] if sys.version_info[1] == $(
	python -c 'import sys; print(sys.version_info[1])') else '')"
torch=$(python3 -c "$site" 2>/dev/null || "${PYTHON:-/usr/bin/python3}" -c "$site" 2>/dev/null || true)
python -c "import pathlib, sysconfig
pathlib.Path(sysconfig.get_path('purelib'), 'torch.pth').write_text('$torch')"
[ -n "$torch" ] || echo "make python: tests of promptfed.Method are not run: no PyTorch was found for this Python"
tools/release/wheel.sh
pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall build/wheel/*.whl
python -m pytest -q -p no:cacheprovider tools/python/tests "$@"
