#!/bin/sh
# Writes promptfed.pb.go and promptfed.connect.go from promptfed.proto. Go downloads the generators; protoc-gen-go and
# protoc-gen-connect-go (buf.gen.yaml) have the versions of go.mod. Lines of more than 120 columns are broken. What the
# generators write for readers that we have none of is taken out: getters, old forms of descriptors, an empty service.
set -eu
cd "$(dirname "$0")"
go run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate
sed -E -i -e 's/ json:"[^"]*"`/`/; s/(protobuf:"[^"]*),json=[A-Za-z0-9]+/\1/' \
	-e 's/unsafe\.Slice\(unsafe\.StringData\((\w+)\), len\(\1\)\)/[]byte(\1)/; /^\tunsafe "unsafe"$/d' \
	-e '/^.{104}/s/(\\x12|\\x1a)(\\x..|.)\.(promptfed|google)/" +\n"\1\2.\3/g' \
	-e '/^func \(x \*\w+\) Get/,/^}/d; /^\/\/ Deprecated: .*Descriptor/,/^}/d; /^func \w+_rawDescGZIP/,/^}/d' \
	-e '/^var \($/,/^\)/d; /^\tsync "sync"$/d' promptfed.pb.go
sed -E -i -e '/^.{117}/s/\) \(\*connect/) (\n*connect/; /^.{117}/s/(\(context\.Context), /\1,\n/' \
	-e '/^\/\/ UnimplementedFederationHandler/,$d; /^\terrors "errors"$/d' promptfed.connect.go
echo "// SHA-256 of promptfed.proto: $(sha256sum promptfed.proto | cut -d' ' -f1)" >>promptfed.pb.go
gofmt -w promptfed.pb.go promptfed.connect.go
