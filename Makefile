# What a contributor can do. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
# One thread per process: the engine, the trainer and the agents share the cores.
export OMP_NUM_THREADS ?= 1
# Each test worker and each program that a test starts would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# One test worker per core. Files with slow tests come first (tests/conftest.py), so that the workers end together.
PARALLEL := --numprocesses auto --dist loadscope --no-loadscope-reorder --ignore tests/e2e
SERVICES := tests/proxy tests/trainer
# Three tenths of the cases of each property test; `make long` runs them without it.
LEAN := --hypothesis-profile lean
# Three workers on two cores: they wait for small servers now and then, and each one collects all tests. tests/e2e imports torch and peft.
QUICK := --numprocesses $(shell echo $$(((3 * $$(nproc) + 1) / 2))) --dist loadscope --hypothesis-profile quick --ignore tests/e2e --ignore tests/browser \
	--ignore tests/conformance --ignore tests/install
IS_QUICK := not e2e and not agents and not slow and not browser
# One worker per core, each with its own browser and store.
BROWSER := --numprocesses auto --dist load tests/browser

.PHONY: faults help setup demo live inbox twenty48 mcp-rl rlvr long-run smollm test check quick long lint style types map docs pages pictures pythons newest wheel gpu browser e2e agents agents-table suite-services suite-unit suite-e2e suite-agents suite-browser suite-postgres bench families soak model clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## create the environment (.venv), if it is not up to date
	@scripts/setup.sh

demo: setup ## a real engine, a real agent, a judge, training and hot swaps on this machine; KEEP=1 stays up at the end
	@$(BIN)/python -m examples.helpdesk.demo $(if $(KEEP),--keep)

live: setup ## users ask for MINUTES, Hone learns meanwhile; TRAFFIC=repeats|unique|swapped-judge, or followups|corrections with ARMS=, SEED=7
	$(BIN)/python -m $(if $(filter followups corrections,$(TRAFFIC)),examples.live.follow_ups.run,examples.live.live) --traffic $(or $(TRAFFIC),repeats) \
		--seed $(or $(SEED),7) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ARMS),--arms $(ARMS))

inbox: setup ## questions about a mailbox: a judge trains, exact answers validate; SEED=7, SHORT=1
	$(BIN)/python -m examples.inbox.run --seed $(or $(SEED),7) $(if $(SHORT),--short)

twenty48: setup ## the game 2048, rewarded by a function; SEED=7, SHORT=1
	$(BIN)/python -m examples.twenty48.run --seed $(or $(SEED),7) $(if $(SHORT),--short)

mcp-rl: setup ## from an MCP server's URL to a better agent: examples/mcp_rl; SEED=7, SHORT=1
	$(BIN)/python -m examples.mcp_rl.run --seed $(or $(SEED),7) $(if $(SHORT),--short)

rlvr: setup ## short texts, each judged by 11 to 20 criteria: examples/rlvr; SEED=7, SHORT=1
	$(BIN)/python -m examples.rlvr.run --seed $(or $(SEED),7) $(if $(SHORT),--short)

long-run: setup ## 400 steps of examples/rlvr over three forms in turn, each measured on the way; MINUTES=100, and the same command goes on; SEED=7
	$(BIN)/python -m examples.rlvr.long_run.run --minutes $(or $(MINUTES),100) --seed $(or $(SEED),7) $(if $(OUT),--out $(OUT))

smollm: setup ## a real pretrained model learns to follow instructions that code checks: examples/smollm; SEED=7, SHORT=1
	$(BIN)/python -m examples.smollm.train --seed $(or $(SEED),7) $(if $(SHORT),--short)

# Two suites at a time, and whichever ends makes room for the next of the list: the long ones first, so that both lanes
# end together. mypy has one thread, and the end-to-end and agents suites mostly wait for an engine with one thread.
# A suite's output appears when it ends. test_postgresql.py always runs on PostgreSQL, whatever --store is.
test: style ## lint, types and the tests that CI runs (end to end against a real vLLM included); `make long` has the rest
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target suite-services types suite-e2e suite-agents suite-unit suite-postgres suite-browser

# Proxy and trainer start most of the programs, and take three fifths of the CPU of all unit tests.
suite-services:
	$(BIN)/pytest $(PARALLEL) $(LEAN) -m "not e2e and not agents and not long" $(SERVICES)

suite-unit:
	$(BIN)/pytest $(PARALLEL) $(LEAN) -m "not e2e and not agents and not long" --ignore tests/browser $(SERVICES:%=--ignore %)

suite-e2e:
	$(BIN)/pytest --numprocesses 2 --no-loadscope-reorder $(LEAN) -m "e2e and not long" tests/e2e

suite-agents:
	$(BIN)/pytest --numprocesses 2 --dist loadfile -m "agents and not long" tests/agents

suite-browser:
	$(BIN)/pytest $(BROWSER)

# tests/recorder/models has no store, and imports transformers.
suite-postgres:
	$(BIN)/pytest $(PARALLEL) --hypothesis-profile statements --store postgres -m "not e2e and not agents and not long" --ignore tests/recorder/store/test_postgresql.py --ignore tests/recorder/models tests/recorder

check: lint ## lint, types and the quick tests that are not heavy (two minutes on two cores)
	$(BIN)/pytest $(QUICK) -m "$(IS_QUICK) and not heavy"

quick: ## the quick tests of what changed since the upstream branch, or the last commit; SINCE=REVISION
	@$(BIN)/python -m scripts.changed_tests $(if $(SINCE),--since $(SINCE)) -- $(QUICK) -m "$(IS_QUICK)"

# One line a suite; tests/proxy/fuzzed.py says what HONE_FUZZ_CASES does.
long: setup ## what `make test` omits, before a release: the tests marked long; all cases of property tests; 20,000 cases of each kind of fuzz; a campaign killed at twenty moments; several proxies, judges and learners on one store, killed for ten minutes; all on PostgreSQL; the demo from a wheel; the examples with three seeds each
	HONE_FUZZ_CASES=20000 $(BIN)/pytest --numprocesses auto --dist worksteal tests/proxy/serving/test_hostile_*.py tests/judge/llm/test_hostile_*.py tests/judge/llm/test_rubric.py tests/judge/rewards/test_rubric_fuzz.py
	$(BIN)/pytest $(PARALLEL) -m "(long or hypothesis) and not e2e and not agents" --ignore tests/browser --ignore tests/install
	$(BIN)/pytest $(PARALLEL) --store postgres -m "(long or hypothesis) and not e2e and not agents" --ignore tests/recorder/store/test_postgresql.py tests/recorder
	$(BIN)/pytest -m "e2e and long" tests/e2e
	HONE_KILLS=20 $(BIN)/pytest tests/trainer/campaign/test_killed.py
	$(BIN)/pytest tests/together
	$(BIN)/pytest --store postgres tests/together
	$(BIN)/python -m benchmarks.several
	$(BIN)/pytest $(PARALLEL) --store postgres -m "not e2e and not agents" tests/judge tests/trainer tests/proxy
	$(BIN)/pytest --store postgres -m e2e tests/e2e
	HONE_INSTALL_CPU=1 $(BIN)/pytest tests/install
	$(BIN)/python -m examples.running.seeds
	$(BIN)/python -m examples.inbox.gamed --write

pythons: setup ## the quick tests under every other Python from 3.11 on that runs here, and a table; ONLY="3.12 3.13" some of them
	@$(BIN)/python -m scripts.pythons $(ONLY) -- $(QUICK) -m "$(IS_QUICK)"

newest: setup ## the trainer's tests with the newest torch, transformers and PEFT, whose steps this engine serves
	@$(BIN)/python -m scripts.newest

wheel: setup ## build the source archive and the wheel into dist/ (docs/release.md); the version is the tag's
	$(BIN)/python -m build --outdir dist

gpu: setup ## the tests that need a GPU, with a report of what ran, how long, and on which device
	@$(BIN)/python -m scripts.gpu

browser: setup ## only the tests in a real browser (Debian's chromium)
	$(BIN)/pytest $(BROWSER)

e2e: setup ## only the tests against a real vLLM
	$(BIN)/pytest -m e2e tests/e2e

agents: setup ## the tests with real agents, all of them, each in an environment of its own
	$(BIN)/pytest -m agents tests/agents

agents-table: setup ## rewrite docs/agents.md from the results of those tests
	HONE_WRITE_TABLE=1 $(BIN)/pytest -m agents tests/agents

lint: style types ## format, lint and check types (with CI=true: change nothing)

style: setup
	$(BIN)/ruff format $(if $(CI),--check) .
	$(BIN)/ruff check $(if $(CI),,--fix) .

types: setup
	$(BIN)/mypy

map: setup ## print each package's folders and what they import, and write them into docs/architecture.md
	@$(BIN)/python -m scripts.import_map
	@$(BIN)/python -m scripts.import_map --write

docs: setup ## build README, docs/ and the examples' pages as one site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: setup ## update the pages that are made from the code: settings, commands, API, metrics, reasons
	$(BIN)/python -m scripts.pages --write

pictures: setup ## draw the pictures of the pages in docs/ from the newest demo, or DATA=FOLDER
	$(BIN)/python -m scripts.pictures $(if $(DATA),--data $(DATA))

bench: setup ## measure what README and docs/ claim about speed, the canary and health rules; results go to benchmarks/results/
	for b in upstream "function_calls --save" "cpu_adapters --save" "rollback --save" "recorder --save" "proxy --save" "idle --save" "verdicts --save" "replies --save" "hybrids --save" "canary --save" "health --write"; do $(BIN)/python -m benchmarks.$$b || exit 1; done

families: setup ## measure what Hone does with each family of models, and write the table in docs/models.md; ONLY="Qwen3", TRAINER=1 without engines
	$(BIN)/python -m benchmarks.families $(if $(ONLY),--only "$(ONLY)") $(if $(TRAINER),--trainer)

faults: setup ## kill, stop and cut everything under load, on both stores, and write docs/faults.md; goes on where it stopped
	$(BIN)/python -m benchmarks.faults --save

soak: setup ## run everything for MINUTES (60) while each program is killed at random; then `hone db check` on the store
	$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60)

model: setup ## train the demo's base model again from scratch (about ten minutes; the result is committed)
	$(BIN)/python -m examples.helpdesk.make_model

clean: ## remove the environment and caches
	rm -rf .venv .venv-agents build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
