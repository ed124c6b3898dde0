# What the examples with an agent of their own share: its environment, and a run of it while Hone serves.
HONE := ../../.venv/bin
export PYTHONPATH := $(abspath ../..)

.PHONY: run show

run: .venv/.made ## ask a few questions while Hone serves
	PATH="$(abspath $(HONE)):$$PATH" $(HONE)/python -m examples.with_hone hone.toml .venv/bin/python agent.py

show: ## what was recorded
	$(HONE)/hone trajectories

.venv/.made: requirements.txt
	$(HONE)/uv venv --quiet --clear .venv
	$(HONE)/uv pip install --quiet --python .venv/bin/python --requirements requirements.txt
	touch $@
