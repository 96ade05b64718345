#!/bin/bash
# Tests docs/deploy (the package here), and builds the image if this machine has a builder. The script prints the reason
# of each step that it skips.
set -euo pipefail
cd "$(dirname "$0")"
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
for builder in docker buildah; do
	if $builder info >/dev/null 2>&1; then
		exec $builder build -t promptfed -f ../../../docs/deploy/Dockerfile ../..
	fi
done
echo "make deploy: the image is not built, because neither docker nor buildah is installed"
