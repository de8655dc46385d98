#!/bin/sh
# Makes .venv: the package (editable) with the extras given as arguments, and torch.
#
#   sh scripts/env.sh demo            PYTHON=python3.12 TORCH=torch sh scripts/env.sh demo test dev
#
# A second run does nothing. An interrupted one is taken up again: .venv/.installed is written last.
# The few Debian packages that the wheels need are installed with apt-get, once, after saying so;
# where that is not possible, the line to run is printed instead.
set -eu
cd "$(dirname "$0")/.."

TORCH=${TORCH:-torch==2.13.0}
EXTRAS=$(echo "${*:-demo}" | tr ' ' '\n' | sort -u | tr '\n' ' ')
VENV=.venv

say() { echo "env: $*" >&2; }
fail() { say "$*"; exit 1; }

fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# Prints the interpreter: PYTHON if given, else the first that fits. 3.10 comes last, because the
# wire without ROS 2 (cyclonedds) has no wheel there.
interpreter() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.10-3.13 that runs here"
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.13 python3 python3.10; do
        if fits "$candidate"; then echo "$candidate"; return; fi
    done
    fail "no Python 3.10-3.13 found. On Debian or Ubuntu: sudo apt-get install -y python3 python3-venv"
}

# Prints the Debian packages whose files this machine lacks: ensurepip, and what cv2 is linked to.
missing_packages() {
    "$1" - <<'PY'
import ctypes, importlib.util, sys
LIBRARIES = {
    "libGL.so.1": "libgl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libgthread-2.0.so.0": "libglib2.0-0",
}
wanted = []
if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
    wanted.append("python%d.%d-venv" % sys.version_info[:2])
for library, package in LIBRARIES.items() if sys.platform == "linux" else ():
    try:
        ctypes.CDLL(library)
    except OSError:
        wanted.append(package)
print(" ".join(dict.fromkeys(wanted)))
PY
}

install_packages() {
    line="apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null || fail "missing on this system, by their Debian names: $*"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "run as root, then try again: $line"
        sudo="sudo"
    fi
    say "installing system packages: $sudo $line"
    # shellcheck disable=SC2086  # words are meant
    { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive $line -qq >/dev/null; } ||
        fail "could not install them; run this yourself, then try again: sudo $line"
}

PY=$(interpreter)
made="$(pwd) $("$PY" -c 'import sys; print(sys.version, sys.base_prefix)' | tr '\n' ' ')"
key=$( (echo "$made $TORCH"; cat setup.py setup.cfg pyproject.toml) | sha256sum | cut -d' ' -f1)

# Whether .venv already holds all that was asked for.
installed() {
    [ -f $VENV/.installed ] && [ "$(head -n1 $VENV/.installed)" = "$key" ] || return 1
    for extra in $EXTRAS; do grep -qx "$extra" $VENV/.installed || return 1; done
}

if installed; then exit 0; fi

packages=$(missing_packages "$PY")
# shellcheck disable=SC2086  # one argument a package
if [ -n "$packages" ]; then install_packages $packages; fi

# A .venv that somebody else made is used as it is; one of ours that has moved, or belongs to another
# interpreter, and one that is broken are made again.
if { [ -f $VENV/.made ] && [ "$(cat $VENV/.made)" != "$made" ]; } || ! $VENV/bin/python -m pip --version >/dev/null 2>&1; then
    say "making $VENV with $PY"
    "$PY" -m venv --clear $VENV
fi
echo "$made" >$VENV/.made
# What is there stays: `make demo` after `make test` must not drop the test tools.
EXTRAS=$( (echo "$EXTRAS" | tr ' ' '\n'; tail -n +2 $VENV/.installed 2>/dev/null || true) | sed '/^$/d' | sort -u)
rm -f $VENV/.installed
list=$(echo "$EXTRAS" | tr '\n' ',' | sed 's/,$//')
say "installing auras_ros[$list] and $TORCH into $VENV (once; some minutes)"
if [ ! -e /dev/nvidiactl ] && [ -z "${PIP_EXTRA_INDEX_URL:-}" ] && [ ! -d "$(echo $VENV/lib/python3*/site-packages/torch)" ]; then
    say "no NVIDIA GPU here: PIP_EXTRA_INDEX_URL=<PyTorch's CPU wheel index> saves several GB"
fi
if [ -t 1 ]; then quiet=; else quiet=-q; fi  # a progress bar for a person, silence for a log
# One command for all of it: a torch resolved on its own could be another than the one asked for.
$VENV/bin/python -m pip install --disable-pip-version-check $quiet "$TORCH" -e ".[$list]"
{ echo "$key"; echo "$EXTRAS"; } >$VENV/.installed.new
mv $VENV/.installed.new $VENV/.installed
say "done: $VENV ($(du -sm $VENV | cut -f1) MB)"
