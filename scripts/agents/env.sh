#!/bin/sh
# Makes .venv-agents: two stock agent frameworks and OpenAI's client, in an environment of their own, because they pin
# versions of libraries that .venv has too. `make test-agents` runs them against `auras serve`.
#
# PYTHON chooses the interpreter (3.10 or later).
set -eu

cd "$(dirname "$0")/../.."
python="${PYTHON:-python3}"
[ -x .venv-agents/bin/python ] || "$python" -m venv .venv-agents
.venv-agents/bin/python -m pip install --quiet --disable-pip-version-check 'openai-agents>=0.20' 'pydantic-ai-slim[openai]>=2'
