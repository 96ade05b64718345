#!/bin/sh
# Writes onnx.pb.go from onnx.proto; needs protoc. protoc-gen-go is of the version that go.mod names. What it writes
# for readers that we have none of (names for JSON, types of enums in tags, the descriptor without a copy) makes lines of
# 200 columns, and is taken out again.
set -eu
cd "$(dirname "$0")/../.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/protoc-gen-go" google.golang.org/protobuf/cmd/protoc-gen-go
PATH="$tmp:$PATH" protoc --go_out=. --go_opt=module=promptfed runtime/onnx/onnx.proto
sed -E -e 's/ json:"[^"]*"`/`/; s/(protobuf:"[^"]*),json=[A-Za-z0-9]+/\1/; s/(protobuf:"[^"]*),enum=[A-Za-z_.]+/\1/' \
	-e 's/unsafe\.Slice\(unsafe\.StringData\((\w+)\), len\(\1\)\)/[]byte(\1)/' \
	-e 's/CompressGZIP\((.*)\)$/CompressGZIP(\n\1)/' -e '/^\tunsafe "unsafe"$/d' \
	runtime/onnx/onnx.pb.go | gofmt > "$tmp/onnx.pb.go"
cp "$tmp/onnx.pb.go" runtime/onnx/onnx.pb.go
