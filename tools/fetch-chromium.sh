#!/usr/bin/env bash
# Downloads a headless Chromium for the browser tests of tools/lab/page into bin/chromium (or the folder in the first argument),
# from the npm package @sparticuz/chromium with the user's npm settings, and unpacks it with Node's brotli. The package is
# pinned by sha512. The script does nothing if PROMPTFED_CHROMIUM names a browser, if one is installed (chromium,
# chromium-browser, google-chrome), or if the pinned one is present. Tests skip without a browser, so a failed download is
# only a warning, unless PROMPTFED_BROWSER=required.
set -euo pipefail

version=153.0.0
package_sum=8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34efc41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0

fail() {
	if [ "${PROMPTFED_BROWSER:-}" = required ]; then
		echo "fetch-chromium: $*" >&2
		exit 1
	fi
	echo "fetch-chromium: $*; the browser tests will be skipped" >&2
	exit 0
}

if [ -n "${PROMPTFED_CHROMIUM:-}" ]; then
	[ -x "$PROMPTFED_CHROMIUM" ] || fail "PROMPTFED_CHROMIUM names $PROMPTFED_CHROMIUM, which is no program: correct it or unset it"
	exit 0
fi
for name in chromium chromium-browser google-chrome; do
	if command -v "$name" >/dev/null; then
		exit 0
	fi
done

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
place=${1:-$root/bin/chromium}
if [ -x "$place/chromium" ] && [ "$(cat "$place/version" 2>/dev/null)" = "$version" ]; then
	exit 0
fi
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "no browser is pinned for $(uname -s) $(uname -m): install Chromium, or set PROMPTFED_CHROMIUM to one"
for name in npm node; do
	command -v "$name" >/dev/null || fail "$name is needed to fetch @sparticuz/chromium $version: install Node.js, or set PROMPTFED_CHROMIUM to a Chromium"
done

mkdir -p "$(dirname "$place")"
work=$(mktemp -d "$(dirname "$place")/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching a headless Chromium for the browser tests ($version, 70 MB)"
(cd "$work" && npm pack --silent "@sparticuz/chromium@$version" >/dev/null) ||
	fail "npm pack @sparticuz/chromium@$version failed: check the network and npm's settings, or set PROMPTFED_CHROMIUM"
archive=$work/sparticuz-chromium-$version.tgz
[ "$(sha512sum "$archive" | cut -d' ' -f1)" = "$package_sum" ] ||
	fail "@sparticuz/chromium $version has another sha512 than the pinned one: the package was altered or cut short; nothing was installed"
tar -xzf "$archive" -C "$work"

# al2023 contains the libraries that Chromium links to (NSS and others), fonts contains one sans-serif family.
unpack() { node -e 'require("fs").createReadStream(process.argv[1]).pipe(require("zlib").createBrotliDecompress()).pipe(process.stdout)' "$work/package/bin/$1"; }
new=$work/new
mkdir "$new"
unpack chromium.br >"$new/chromium"
chmod 755 "$new/chromium"
for part in al2023 fonts swiftshader; do
	unpack $part.tar.br | tar -xf - -C "$new"
done
# The fonts.conf of the package names the folder of the font in a cloud function.
cat >"$new/fonts.conf" <<'EOT'
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
EOT
cp "$work/package/LICENSE" "$new/LICENSE"
echo "$version" >"$new/version"
[ ! -d "$place" ] || [ -f "$place/version" ] || rmdir "$place" 2>/dev/null || fail "$place holds other files; name a new folder"
rm -rf "$place"
mv "$new" "$place"
echo "$place"
