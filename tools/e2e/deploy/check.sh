#!/bin/bash
# Tests docs/deploy (the package here), writes the digest of what it tested to checked.txt, and builds the image if this
# machine has a builder. The script prints the reason of each step that it skips.
#
#	check.sh            all steps
#	check.sh --changed  without the tests if checked.txt has the digest: pinned modules say the same of the same files
set -euo pipefail
cd "$(dirname "$0")"
inputs=$(git ls-files . ../../../docs/deploy | grep -v '^checked\.txt$' | xargs sha256sum | sha256sum | cut -c 1-16)
if [ "${1-}" = --changed ] && [ "$inputs" = "$(cat checked.txt)" ]; then
	echo "make deploy: the tests are skipped, because they passed with these files (tools/e2e/deploy/checked.txt)"
else
	if ! said=$(go list -deps -test . 2>&1 >/dev/null); then
		if why=$(grep -m 1 -E 'dial tcp|lookup |timeout|proxyconnect|TLS handshake|module lookup disabled' <<<"$said"); then
			echo "make deploy: skipped, because modules cannot be downloaded: $why"
			exit 0
		fi
		echo "$said" >&2
		exit 1
	fi
	go vet .
	go test -count=1 .
	[ "$inputs" = "$(cat checked.txt)" ] || {
		echo "$inputs" >checked.txt
		echo "make deploy: wrote tools/e2e/deploy/checked.txt; commit it"
	}
fi
for builder in docker buildah; do
	if $builder info >/dev/null 2>&1; then
		exec $builder build -t promptfed -f ../../../docs/deploy/Dockerfile ../..
	fi
done
echo "make deploy: the image is not built, because neither docker nor buildah is installed"
