#!/bin/sh
# Writes onnx.pb.go from onnx.proto; needs protoc. protoc-gen-go is of the version that go.mod names. What it writes
# for readers that we have none of is taken out again: getters that nobody calls, deprecated descriptors, maps of enums,
# names for JSON, types of enums in tags.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
PATH="$tmp:$PATH" protoc -I. --go_out=. --go_opt=module=promptfed runtime/onnx/onnx.proto
called=$(grep -rhoE --include='*.go' '\.Get[A-Z][A-Za-z]*\(\)' federation models runtime tools | sort -u)
awk -v RS= -v ORS='\n\n' -v called="$called" '
	/^func \(x \*/ && match($0, /\) Get[A-Za-z]+\(\)/) && !index(called, "." substr($0, RSTART + 2, RLENGTH - 2)) { next }
	/^\/\/ Deprecated: Use [A-Za-z_.]+ instead/ || /^\/\/ Enum value maps/ || /^func .* Enum\(\)/ || /rawDescOnce/ { next }
	{ print }' runtime/onnx/onnx.pb.go |
	sed -E -e 's/ json:"[^"]*"`/`/; s/(protobuf:"[^"]*),json=[A-Za-z0-9]+/\1/; s/(protobuf:"[^"]*),enum=[A-Za-z_.]+/\1/' \
		-e 's/unsafe\.Slice\(unsafe\.StringData\((\w+)\), len\(\1\)\)/[]byte(\1)/' \
		-e '/^\t(sync "sync"|unsafe "unsafe")$/d' | gofmt > "$tmp/onnx.pb.go"
cp "$tmp/onnx.pb.go" runtime/onnx/onnx.pb.go
