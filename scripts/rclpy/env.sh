#!/bin/sh
# Makes .venv-DISTRIBUTION: rclpy and the messages of a ROS 2 distribution, from wheels, beside all that .venv has.
#
#   sh scripts/rclpy/env.sh jazzy        sh scripts/rclpy/env.sh kilted
#
# The wheels are somebody's builds for Linux on x86-64, not ROS's own: they are for the tests. Their versions and
# hashes are in DISTRIBUTION.txt, which lock.py writes. .venv has to be there (scripts/env.sh). A second run does
# nothing; an interrupted one is begun again: .installed is written last.
set -eu
cd "$(dirname "$0")/../.."

DISTRIBUTION=$1
LOCK=scripts/rclpy/$DISTRIBUTION.txt
VENV=.venv-$DISTRIBUTION

say() { echo "rclpy: $*" >&2; }
fail() { say "$*"; exit 1; }

[ -f "$LOCK" ] || fail "no $LOCK: the distributions are $(cd scripts/rclpy && echo *.txt | sed 's/\.txt//g')"
[ -x .venv/bin/python ] || fail "no .venv: run make env first"
case "$(uname -sm)" in
"Linux x86_64") ;;
*) fail "these wheels are for Linux on x86-64 alone; here rclpy comes from ROS 2 itself: docs/ros2.md" ;;
esac

packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
key=$( (echo "$packages"; cat "$LOCK" scripts/rclpy/env.sh) | sha256sum | cut -d' ' -f1)
if [ -f $VENV/.installed ] && [ "$(cat $VENV/.installed)" = "$key" ]; then exit 0; fi

say "installing rclpy of $DISTRIBUTION into $VENV (once; half a minute)"
.venv/bin/python -c 'import sys, venv; venv.create(sys.argv[1], clear=True, with_pip=True)' $VENV
$VENV/bin/python -m pip install --disable-pip-version-check -q --no-deps --require-hashes --only-binary :all: -r "$LOCK"
# What .venv has: our package, torch, the test tools. It is looked at last, so nothing of it hides the wheels.
echo "import site; site.addsitedir('$packages')" >"$($VENV/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/zz_auras.pth"
echo "$key" >$VENV/.installed
say "done: $VENV ($(du -sm $VENV | cut -f1) MB)"
