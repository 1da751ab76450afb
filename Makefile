# `make demo` and `make test` are all a newcomer needs; both set up .venv on their first call.
PYTHON ?= python3
BIN    := .venv/bin
# Not in the lock: which build is right (CPU or CUDA) depends on the machine. Tests and benchmarks
# compare with it; nothing else uses it.
TORCH  := torch==2.13.0

.PHONY: demo test test-slow lint lock clean

demo: .venv/ready
	@$(BIN)/regatta demo $(if $(ONCE),--once) $(if $(REPORT),--report $(REPORT))

test: .venv/ready-for-tests
	$(BIN)/pytest

test-slow: .venv/ready-for-tests
	$(BIN)/pytest -m slow

lint: .venv/ready-for-tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regatta needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which one: make PYTHON=/path/to/python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

.venv/ready-for-tests: .venv/ready requirements-test.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-test.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	touch $@

# Pins for Python 3.11 and newer, with hashes and without any registry's address. Needs uv.
lock:
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-header --no-annotate --group test --constraints requirements.lock -o requirements-test.lock

clean:
	rm -rf .venv store build *.egg-info
