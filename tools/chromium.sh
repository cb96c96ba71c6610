#!/bin/sh
# Prints the path of a Chromium or Chrome that the tests in a browser can drive. One that is there is taken; root on a
# Debian system gets Debian's; anybody else is told what to do.
set -eu
for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$name" ] && path=$(command -v "$name"); then
        echo "$path"
        exit 0
    fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing chromium with apt-get, once" >&2
    { apt-get update && apt-get install -y --no-install-recommends chromium; } >&2 && command -v chromium && exit 0
fi
echo "no chromium: install it (Debian: apt-get install chromium) or name one: make test-browser CHROMIUM=/path/to/chrome" >&2
exit 1
