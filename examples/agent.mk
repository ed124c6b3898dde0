# Shared by the examples with their own agent: its environment, and running it while Hone serves.
HONE := ../../.venv/bin
export PYTHONPATH := $(abspath ../..)

.PHONY: run show

run: .venv/.made ## let the agent answer a few questions while Hone serves
	PATH="$(abspath $(HONE)):$$PATH" $(HONE)/python -m examples.with_hone hone.toml .venv/bin/python agent.py

show: ## list what was recorded
	$(HONE)/hone trajectories

.venv/.made: requirements.txt
	$(HONE)/uv venv --quiet --clear .venv
	$(HONE)/uv pip install --quiet --python .venv/bin/python --requirements requirements.txt
	touch $@
