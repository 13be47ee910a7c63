# Needs Python >= 3.11 and Java >= 17; everything else goes into .venv by itself. For another Python:
# make test VENV=.venv-3.13 PYTHON=python3.13
SHELL := /bin/sh
VENV  := .venv
PY    := $(VENV)/bin/python
# Tests wait for Spark and for processes of their own: three at a time keep two cores busy.
JOBS  ?= 3
ARGS  ?=
PYTEST = $(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Each of hundreds of processes would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# Older versions of Spark that are supported, each in an environment of its own; .venv has the newest.
SPARKS := 3.5 4.0 4.1

.PHONY: help test long lint accept demo docs bench fuzz soak faults interop versions venv httpfs java clean
.SILENT:
.DEFAULT_GOAL := help

help:
	echo "make demo    a real table, indexed and queried with and without the index"
	echo "make test    the tests, on this Python and the newest Spark"
	echo "make long    tests in other environments: the package, older Sparks, Connect, jars, two workers, every figure"
	echo "make lint    ruff and mypy --strict"
	echo "make accept  every promise as a user would try it, one line each"
	echo "make docs    the documentation site, in site/"
	echo "make bench   the figures, one JSON line each"
	echo "make fuzz    every parser against 100,000 damaged files, in processes that may die"
	echo "make faults  every fault at every step of every verb that writes"
	echo "make soak    random tables on every route, then the tests that take hours and properties of many examples"
	echo "make interop files exchanged with Paimon, QuestDB and other readers of Parquet"
	echo "make versions  reading through an index on every version of Spark that is supported"
	echo "make venv    only set up .venv; make clean removes what was made, not .venv and .interop"

# tests/order.py has the order of the modules: by the number of tests, a few long ones would come last.
# tests.prepare makes once what the processes of a first run would each make for themselves.
test: java $(VENV)/spark.jsa
	$(PY) -m tests.prepare
	$(PYTEST) $(ARGS)

long: java $(VENV)/spark.jsa $(SPARKS:%=.venv-spark%/spark.jsa)
	$(PYTEST) -m "long and not soak and not interop" $(ARGS)

lint: $(VENV)/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

accept: java $(VENV)/.stamp
	$(PY) -m tests.accept $(ARGS)

demo: java $(VENV)/.stamp
	$(PY) -m tools.demo $(ARGS)

docs: $(VENV)/.stamp
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)

bench: java $(VENV)/.stamp
	$(PY) -m bench $(ARGS)

fuzz: $(VENV)/.stamp
	NUMBA_BOUNDSCHECK=1 $(PY) -m tests.fuzz $(ARGS)
	NUMBA_BOUNDSCHECK=1 HYPOTHESIS_PROFILE=fuzz $(PY) -m pytest -m fuzz -n $(JOBS)

faults: $(VENV)/.stamp
	$(PY) -m tests.faults $(ARGS)

soak: java $(VENV)/.stamp
	$(PY) -m tests.soak $(ARGS)
	HYPOTHESIS_PROFILE=soak $(PY) -m pytest -m "soak or fuzz"
	HYPOTHESIS_PROFILE=many $(PYTEST) -m "hypothesis and not (soak or fuzz or long or interop)"

# Maven fetches the jars once, into .interop/. Without Maven, Java or the network tests skip.
interop: $(VENV)/.stamp
	$(PY) -m pytest -m "interop or spark" -raP --show-capture=stdout \
	  tests/interop tests/rewrite/test_encrypt_spark.py tests/facts/test_encrypted_spark.py $(ARGS)

venv: $(VENV)/.stamp

# The newest runs these with everything else, in `make test`.
versions: java $(SPARKS:%=.venv-spark%/spark.jsa)
	for version in $(SPARKS); do \
	  echo "PySpark $$version"; \
	  .venv-spark$$version/bin/python -m pytest -W ignore -p no:cacheprovider -m "not soak and not interop" \
	    tests/spark/test_skip.py tests/spark/joins tests/spark/test_catalyst.py tests/spark/test_scans.py \
	    tests/spark/test_txn_scan.py tests/spark/sources tests/spark/test_watch.py \
	    tests/spark/test_connect.py tests/spark/test_enable.py tests/spark/test_enabled_worlds.py \
	    tests/spark/test_catalog_table.py \
	    $(ARGS) || exit 1; \
	done

# A DuckDB that reads object stores and tables of formats, for `make bench`: it needs another version
# than the tests.
httpfs: .venv-httpfs/.stamp

.venv-httpfs/.stamp: Makefile tools/bootstrap.sh
	sh tools/bootstrap.sh venv .venv-httpfs 'duckdb==1.5.5' 'duckdb-extension-httpfs==1.5.5' \
	  'duckdb-extension-delta==1.5.5' 'duckdb-extension-iceberg==1.5.5' 'duckdb-extension-avro==1.5.5'
	touch $@

java:
	sh tools/bootstrap.sh java

$(VENV)/.stamp: pyproject.toml tools/bootstrap.sh
	sh tools/bootstrap.sh venv $(VENV) -e '.[test,lint,docs]'
	sh tools/bootstrap.sh venv $(VENV) --no-deps 'pypaimon>=2.1,<2.2'
	touch $@

# Spark's classes as Java keeps them, for Java processes that tests start.
%/spark.jsa: %/.stamp tests/java.py
	$*/bin/python -m tests.java

.venv-spark%/.stamp: pyproject.toml tools/bootstrap.sh Makefile
	sh tools/bootstrap.sh venv .venv-spark$* -e '.[spark,delta,iceberg]' 'pyspark[connect]==$*.*' pytest hypothesis
	touch $@

clean:
	rm -rf build dist site demo-data bench-data bench-out soak-out fuzz-out faults-out spark-warehouse metastore_db derby.log artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name ".venv*" -prune -o -type d -name __pycache__ -exec rm -rf {} +
