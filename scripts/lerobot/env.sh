#!/bin/sh
# Makes .venv-lerobot: the releases of LeRobot that write the fixtures of the loaders' tests, each in a folder of its own.
#
#   PYTHON=python3.12 sh scripts/lerobot/env.sh 0.5.0 0.6.1        without releases: all of them
#   PYTHONPATH=.venv-lerobot/0.6.1 .venv-lerobot/bin/python ...    runs one
#
# LeRobot 0.5 and later need Python 3.12. Packages that the releases share are installed once (common.txt), with our
# torch, so that two libraries are compared and not two versions of torch; those that differ are in RELEASE.txt. Without
# a GPU, PIP_EXTRA_INDEX_URL set to PyTorch's CPU wheel index leaves several GB of CUDA libraries out. A second run does
# nothing; an interrupted one is begun again: .installed is written last.
set -eu
cd "$(dirname "$0")/../.."

LISTS=scripts/lerobot
VENV=.venv-lerobot
known=$(cd $LISTS && ls [0-9]*.txt | sed 's/\.txt$//' | tr '\n' ' ')
RELEASES=${*:-$known}

say() { echo "lerobot: $*" >&2; }
fail() { say "$*"; exit 1; }
pip() { $VENV/bin/python -m pip install --disable-pip-version-check -q "$@"; }

for release in $RELEASES; do
    [ -f "$LISTS/$release.txt" ] || fail "$release is not known; known: $known"
done
fits() { "$1" -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
python=
for candidate in ${PYTHON:-} python3.12 python3.13 python3; do
    if fits "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || fail "LeRobot 0.5 and later need Python 3.12 or 3.13: say where one is, PYTHON=..."

key=$( ("$python" -c 'import sys; print(sys.version)'; cat $LISTS/common.txt) | sha256sum | cut -d' ' -f1)
if [ ! -f $VENV/.installed ] || [ "$(cat $VENV/.installed)" != "$key" ]; then
    say "installing what LeRobot's releases share into $VENV (once; some minutes)"
    "$python" -m venv --clear $VENV
    pip -r $LISTS/common.txt
    echo "$key" >$VENV/.installed
fi
for release in $RELEASES; do
    key=$(cat $VENV/.installed $LISTS/$release.txt | sha256sum | cut -d' ' -f1)
    if [ -f $VENV/$release/.installed ] && [ "$(cat $VENV/$release/.installed)" = "$key" ]; then continue; fi
    say "installing LeRobot $release into $VENV/$release"
    rm -rf "${VENV:?}/$release"
    pip --no-deps --target $VENV/$release -r $LISTS/$release.txt
    echo "$key" >$VENV/$release/.installed
done
