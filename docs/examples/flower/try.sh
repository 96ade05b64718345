#!/usr/bin/env bash
# Runs one experiment in promptfed and in Flower, and compares the merged prompt after each round. bin/promptfed must
# exist. build/flower gets a virtual environment with Flower and PyTorch, about 6 GB, unless it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

venv=$PWD/build/flower
work=$(mktemp -d)
link=
trap '[ -z "$link" ] || kill "$link"; rm -rf "$work"' EXIT
[ -x "$venv/bin/flwr" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet 'flwr[simulation]' torch transformers; }
export PATH=$venv/bin:$PATH FLWR_HOME=$work/home FLWR_TELEMETRY_ENABLED=0 RAY_USAGE_STATS_ENABLED=0

checkpoint=$PWD/models/bundle/converted/testdata/huggingface
bin/promptfed convert "$checkpoint" --out "$work/clip" >/dev/null
bin/promptfed trace docs/examples/flower/promptfl.yaml --set "backbones=[$work/clip]" --rounds 3 --out "$work/trace"

# A SuperLink of this script's own, as flwr run starts one that stays.
read -r control http < <(python -c 'import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in free))')
mkdir -p "$FLWR_HOME"
printf '[superlink]\ndefault = "own"\n[superlink.own]\naddress = "127.0.0.1:%s"\ninsecure = true\n' "$http" >"$FLWR_HOME/config.toml"
flower-superlink --insecure --simulation --isolation subprocess --control-api-address "127.0.0.1:$control" --host 127.0.0.1 \
	--port "$http" --database "$work/state.db" >"$work/superlink.log" 2>&1 &
link=$!
until curl --silent --fail --output /dev/null "http://127.0.0.1:$http/health"; do
	kill -0 "$link" || { cat "$work/superlink.log"; exit 1; }
done

for _ in 1 2 3 4 5; do # Ray waits 30 s for its own start, which is too short where other work runs
	timeout 1800 flwr run docs/examples/flower --stream --federation-config num-supernodes=4 \
		-c "trace=\"$work/trace\" checkpoint=\"$checkpoint\"" >"$work/flower.log" 2>&1 || true
	grep -q 'node timed out during startup' "$work/flower.log" || break
done
grep '^round [1-3]: the prompt differs by ' "$work/flower.log" || true
grep -q '^round 3: the prompt differs by ' "$work/flower.log" || { cat "$work/flower.log"; exit 1; }
echo "make flower: passed, $(flwr --version)"
