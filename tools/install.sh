#!/bin/sh
# Installs this project, editable, with the exact versions of constraints.txt: tools/install.sh VENV '.[extra,…]'
# With uv, which takes seconds; where uv cannot be had or does not find a package, with pip.
set -eu
venv=$1
what=$2
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null || {
    echo "activeprune needs Python 3.11, 3.12 or 3.13, and '$python' is not one: try make PYTHON=python3.12" >&2
    exit 1
}
with_uv() {
    [ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --constraint constraints.txt uv || return 1
    UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" "$venv/bin/uv" pip install --quiet \
        --python "$venv/bin/python" --constraint constraints.txt --editable "$what"
}
with_pip() {
    echo "Going on with pip"
    "$venv/bin/python" -m pip install --constraint constraints.txt --editable "$what"
}

# A set-up that broke off leaves .incomplete behind; the next one starts from an empty environment.
if [ ! -x "$venv/bin/python" ] || [ -e "$venv/.incomplete" ]; then
    echo "Creating $venv"
    rm -rf "$venv"
    mkdir -p "$venv"
    touch "$venv/.incomplete"
    "$python" -m venv "$venv"
fi
touch "$venv/.incomplete"
mkdir -p "$venv/.aside"
for record in .core .dev .docs .mutants; do  # make's records of what is installed; not true until this is done
    [ ! -e "$venv/$record" ] || mv "$venv/$record" "$venv/.aside/"
done
echo "Installing $what, once (seconds, or minutes where packages must be downloaded)"
with_uv || with_pip
for record in .core .dev .docs .mutants; do
    [ ! -e "$venv/.aside/$record" ] || mv "$venv/.aside/$record" "$venv/"
done
rm "$venv/.incomplete"
