# make demo | test | test-rclpy | test-ros | test-worlds | test-triton | test-robomimic | test-lerobot | test-agents | lint | format | env | train | gpu | clean
#
# Everything is installed into .venv and nowhere else. PYTHON chooses the interpreter (3.10-3.13),
# TORCH the torch to install: a GPU user may say TORCH=torch, or name a build of her own. Without a GPU,
# PIP_EXTRA_INDEX_URL set to PyTorch's CPU wheel index leaves several GB of CUDA libraries out.
TORCH ?= torch==2.13.0
export PYTHON TORCH

BIN := .venv/bin
.DEFAULT_GOAL := help
.PHONY: help env demo test test-rclpy test-ros test-worlds test-triton test-robomimic test-lerobot test-agents lint format train gpu clean

help:
	@echo 'make demo   install what the demo needs, then run the live closed loop three times, about four minutes;'
	@echo '            SIM=pusht: on a table that stands still; SIM=lift, SIM=lift-moving:table_m_s=0.1: robosuite, installed'
	@echo '            into an environment of its own, two plays of eight episodes'
	@echo 'make test   install what the tests need, then lint and test'
	@echo 'make test-rclpy  install rclpy of Jazzy and of Kilted from wheels (x86-64), and test the nodes on each'
	@echo 'make test-ros  the same tests with the rclpy of a ROS 2 installation that is sourced'
	@echo 'make test-worlds  make the environment of robosuite, and run the tests that need it'
	@echo 'make test-triton  install Triton; run its kernels in the interpreter, and compile them for GPUs that are not here'
	@echo 'make test-robomimic  make the environment of robomimic; compare worlds and policies with what robomimic itself does'
	@echo 'make test-lerobot  make an environment for each LeRobot that is known; write its folders, compare the actions with ours'
	@echo 'make test-agents  make an environment of stock agent frameworks; run them against auras serve, tools included'
	@echo 'make env    install everything: .venv/bin/auras is the program'
	@echo 'make lint   ruff, mypy, one-way imports'
	@echo 'make format let ruff fix and format'
	@echo 'make train  train the Push-T policy again (CPU, long)'
	@echo 'make gpu    list the parts that need a CUDA GPU; make gpu PART=all runs them'
	@echo 'make clean  remove .venv, builds and caches'

env:
	@sh scripts/env.sh demo test dev

demo:
	@sh scripts/env.sh demo
	@$(if $(SIM),$(BIN)/auras doctor --sim '$(SIM)' --fix)
	@$(BIN)/auras demo $(if $(SIM),--sim '$(SIM)')

# Three workers on two cores, because a third of the tests' time is spent waiting.
test: env lint
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# The nodes on a real rclpy, with Fast DDS, its default. Each distribution has an environment of its own, which also sees
# .venv. DISTRIBUTIONS="jazzy" tests one of them.
DISTRIBUTIONS ?= jazzy kilted
RCLPY_TESTS := tests/portability tests/nodes tests/faults tests/live/soak tests/launch tests/package/test_editable.py
KILTED_TESTS := tests/portability tests/nodes/actuator tests/nodes/agent tests/live/soak/test_armings.py tests/launch
SOAK_MINUTES ?= 1.5
test-rclpy:
	@sh scripts/env.sh demo test
	@for each in $(DISTRIBUTIONS); do \
	  sh scripts/rclpy/env.sh $$each || exit; \
	  echo "rclpy of $$each:"; \
	  if [ $$each = kilted ]; then tests='$(KILTED_TESTS)'; else tests='$(RCLPY_TESTS)'; fi; \
	  AURAS_ROS_BACKEND=rclpy .venv-$$each/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $$tests || exit; \
	  AURAS_ROS_BACKEND=rclpy .venv-$$each/bin/python -m auras_ros.cli.main soak --minutes $(SOAK_MINUTES) || exit; \
	done

# Nothing is installed: rclpy comes with a sourced ROS 2 and imports under the Python that it was built for alone.
test-ros:
	@$(BIN)/python -c 'import rclpy' || { echo 'make test-ros: rclpy does not import under $(BIN)/python. Source a' \
	  'ROS 2 installation; .venv has to be of its Python: PYTHON=python3.12 make env for Jazzy' >&2; exit 2; }
	@AURAS_ROS_BACKEND=rclpy $(BIN)/python -m pytest $(RCLPY_TESTS)

# robosuite has an environment of its own, since its numpy is older than ours; pytest is in it too.
test-worlds:
	@sh scripts/env.sh demo test
	@$(BIN)/auras doctor --sim lift --fix
	@"$$($(BIN)/python -c 'from auras_ros.environments import ROBOSUITE; print(ROBOSUITE.python("lift"))')" \
	  -m pytest tests/worlds
	@$(BIN)/python -m pytest tests/worlds/test_lift_over_the_wire.py tests/worlds/test_lift_bridge.py \
	  tests/worlds/test_robomimic_played.py

# Triton takes a gigabyte, more than all else that tests need together; a GPU's torch brings its own.
test-triton:
	@sh scripts/env.sh demo test triton
	@$(BIN)/python -m pytest tests/kernels/test_grouped_lora_triton.py tests/lora/test_kernel_adaptation.py \
	  tests/bench/lora/test_atmm_gpu.py
	@$(BIN)/python -m tests.kernels.compile_all

# No part of `make test-worlds`: an environment of 2 GB, for torch.
test-robomimic:
	@sh scripts/env.sh demo test
	@$(BIN)/auras doctor --sim robomimic --fix
	@"$$($(BIN)/python -c 'from auras_ros.environments import ROBOMIMIC; print(ROBOMIMIC.python("robomimic"))')" \
	  -m pytest tests/worlds/test_robomimic.py
	@$(BIN)/python -m pytest tests/worlds/test_robomimic_inference.py

# Each release writes folders of all types, with what it answers itself, and our actions are compared with that.
# RELEASES=0.6.1 takes one. LEROBOT_PYTHON names a Python 3.12 if the machine's own is older. KEEP=1 then copies those
# folders into tests/ that git has.
RELEASES ?= 0.4.4 0.5.0 0.5.1 0.6.1
test-lerobot:
	@sh scripts/env.sh demo test
	@PYTHON=$(LEROBOT_PYTHON) sh scripts/lerobot/env.sh $(RELEASES)
	@rm -rf out/lerobot
	@for each in $(RELEASES); do \
	  PYTHONPATH=.venv-lerobot/$$each .venv-lerobot/bin/python scripts/write_loader_fixtures/lerobot_matrix.py \
	    out/lerobot || exit; \
	done
	@$(if $(filter 1,$(KEEP)),$(BIN)/python scripts/lerobot/keep.py out/lerobot)
	@LEROBOT_FOLDERS=out/lerobot $(BIN)/python -m pytest tests/policies/loaders/test_lerobot_releases.py

# Agent frameworks as their own pages use them, in an environment of their own (.venv-agents).
test-agents:
	@sh scripts/env.sh demo test
	@sh scripts/agents/env.sh
	@$(BIN)/python -m pytest -n 1 tests/serve/test_agent_frameworks.py

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

train:
	@sh scripts/env.sh demo
	@$(BIN)/auras train pusht --out runs/pusht-policy

# PART is a name or several, with commas. A part whose JSON lies in OUT is not run again, unless FORCE=1. Nothing is
# installed: any PYTHON with torch, numpy and pytest will do.
comma := ,
GPU_PYTHON = $(or $(PYTHON),$(BIN)/python)
gpu:
	@command -v $(GPU_PYTHON) >/dev/null || { echo 'make gpu: no $(GPU_PYTHON): run make env, or say PYTHON=...' >&2; exit 2; }
	@$(GPU_PYTHON) -m auras_ros.bench.gpu $(subst $(comma), ,$(PART)) --out "$(or $(OUT),out/gpu)" $(if $(filter 1,$(FORCE)),--force)

clean:
	rm -rf .venv build dist install log *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
