PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PIP_FLAGS ?=
JOBS ?= 2
FOCUS_PYTHON ?= python3.12
EXTRAS := train aws gcp kubernetes slurm fleet frames daemon
IMAGE_EXTRAS := daemon aws gcp kubernetes slurm

# Each of a thousand processes of the tests would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-harsh demo-fleet quick test exhaustive mutants kubernetes-test-server check check-style check-types \
	check-imports check-tests workflows wheel fresh \
	oldest-versions lock sbom docs notebooks figures bench soak checkov focus audit format clean

$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt torch==2.13.0
	$(PIP) install --quiet -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(PIP_FLAGS) -c constraints.txt torch==2.13.0 -e '.[train,daemon,dev]'
	$(PIP) install --quiet -c constraints.txt --no-deps torchtitan
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run  ## train the example on a typical market, and write its report
	$(BIN)/python examples/finetune/demo.py

demo-harsh: $(VENV)/.run  ## the same on a market with less capacity
	$(BIN)/python examples/finetune/demo.py --profile harsh

demo-fleet: $(VENV)/.dev  ## ten trainings of three tenants on a simulated cluster with spot
	$(BIN)/python examples/fleet/demo.py

quick: $(VENV)/.dev  ## unit and contract tests without processes, browser, database or test cloud
	COSTOPT_EXAMPLES_SHARE=0.1 $(BIN)/python -m pytest --workers $(JOBS) -q \
		-m "not process and not slow and not browser and not postgres and not slurm and not cloud" \
		tests/unit tests/contract tests/golden

test: $(VENV)/.dev  ## every test
	$(BIN)/python -m pytest -q --workers $(JOBS)

mutants: build/mutants/map.json  ## which of 100 faults in the product the tests notice, by package
	$(BIN)/python -m tests.support.mutants run --report build/mutants/report.json

build/mutants/map.json: | $(VENV)/.dev
	$(BIN)/python -m tests.support.mutants map -- --workers $(JOBS) -q

kubernetes-test-server:  ## kube-apiserver and kube-scheduler for tests, from Debian's source; once
	tests/support/kubernetes/build_server.sh

check: check-types check-style check-imports  ## style, types, architecture; make -j2 in parallel

check-types: $(VENV)/.dev
	$(BIN)/mypy

check-style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-imports: $(VENV)/.dev
	PYTHONPATH=providers $(BIN)/lint-imports

check-tests: $(VENV)/.dev  ## whether all tests can be collected; compiles them once for all workers
	$(BIN)/python -m pytest --collect-only -q >/dev/null

fresh:  ## the outputs of an install of the newest versions, which can be parsed
	$(PYTHON) -m venv --clear $(VENV)/fresh
	$(VENV)/fresh/bin/python -m pip install --quiet --disable-pip-version-check .
	$(VENV)/fresh/bin/python tests/support/parse_outputs.py "$$(mktemp -d)"

oldest-versions:  ## build/oldest.txt: constraints with the oldest versions that costopt's ranges allow
	mkdir -p build
	$(PYTHON) -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/pip install --quiet uv
	$(VENV)/oldest/bin/uv pip compile --quiet --resolution lowest-direct --no-annotate --no-header \
		$(foreach extra,$(EXTRAS),--extra $(extra)) --no-emit-package torch \
		--output-file build/oldest.txt pyproject.toml

workflows:  ## the GitHub and GitLab files by their schemas, and for weaknesses
	$(PYTHON) -m venv $(VENV)/workflows
	$(VENV)/workflows/bin/pip install --quiet check-jsonschema==0.39.0 zizmor
	$(VENV)/workflows/bin/check-jsonschema --builtin-schema vendor.github-workflows \
		.github/workflows/*.yml
	$(VENV)/workflows/bin/check-jsonschema --builtin-schema vendor.github-actions \
		action.yml .github/actions/*/action.yml
	$(VENV)/workflows/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(VENV)/workflows/bin/zizmor --offline --quiet --min-severity medium .github action.yml

wheel:  ## wheel and source archive in dist/, checked, and tried in an environment of its own
	rm -rf dist $(VENV)/wheel
	$(PYTHON) -m venv $(VENV)/wheel
	$(VENV)/wheel/bin/pip install --quiet build twine
	$(VENV)/wheel/bin/python -m build --outdir dist .
	$(VENV)/wheel/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear $(VENV)/wheel
	$(VENV)/wheel/bin/pip install --quiet dist/*.whl
	cd $$(mktemp -d) && PATH=$(abspath $(VENV))/wheel/bin:$$PATH && costopt init \
		&& costopt plan job.yaml --market sample \
		&& costopt what-if job.yaml --market sample --policies cheapest --points 0

lock:  ## deploy/requirements.txt: the versions of constraints.txt that the daemon's image needs, with hashes
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet uv
	echo hatchling | $(VENV)/lock/bin/uv pip compile --quiet --generate-hashes --universal \
		--python-version 3.11 --constraint constraints.txt --no-annotate --no-header \
		$(foreach extra,$(IMAGE_EXTRAS),--extra $(extra)) \
		--output-file deploy/requirements.txt pyproject.toml -

sbom:  ## the packages that an install of the wheel brings, as CycloneDX; after wheel
	mkdir -p build
	$(PYTHON) -m venv $(VENV)/sbom
	$(VENV)/sbom/bin/pip install --quiet cyclonedx-bom
	$(VENV)/sbom/bin/cyclonedx-py environment --output-format JSON \
		--output-file build/sbom.cdx.json $(VENV)/wheel/bin/python

docs: $(VENV)/docs/.done  ## the site in .site/; broken links fail
	$(VENV)/docs/bin/mkdocs build --strict --quiet

$(VENV)/docs/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/pip install --quiet -c constraints.txt -e ".[docs]"
	@touch $@

notebooks: $(VENV)/.dev  ## execute the notebooks, and write their outputs and pages
	$(BIN)/python examples/notebooks/refresh.py

figures: $(VENV)/.dev  ## plans, what-ifs, backtests and runs whose figures no change may alter unnoticed
	$(BIN)/python -m benchmarks.figures

bench: $(VENV)/.dev  ## benchmarks; prints figures, asserts none, and writes them into the pages
	$(BIN)/python -m benchmarks --save
	$(BIN)/python -m benchmarks.results

exhaustive: $(VENV)/.dev  ## exhaustive tests at every point, every whole job, a thousand races for a store
	COSTOPT_CRASHES_SHARE=1 COSTOPT_RACES=1000 $(BIN)/python -m pytest --workers $(JOBS) \
		tests/faults tests/terraform tests/cli/test_catalog_update.py

soak: exhaustive  ## 100,000 made-up markets, 10,000 kills while saving, 1,000 of sharded gangs, of elastic gangs, of the daemon and its machine; hours
	COSTOPT_TRACES=100000 $(BIN)/python -m pytest tests/properties/test_shield_adversary.py \
		tests/properties/test_shield_unlucky.py
	COSTOPT_KILLS=10000 $(BIN)/python -m pytest tests/faults/test_checkpoint_kill.py
	COSTOPT_SHARDED_KILLS=1000 $(BIN)/python -m pytest tests/faults/test_sharded_kill.py \
		tests/faults/test_sharded_writer.py
	COSTOPT_ELASTIC_EVENTS=1000 $(BIN)/python -m pytest tests/faults/test_train_torture.py
	COSTOPT_DAEMON_KILLS=1000 $(BIN)/python -m pytest -s tests/faults/test_daemon_torture.py

checkov: $(VENV)/.dev  ## the Terraform modules with checkov, in an environment of its own
	$(PYTHON) -m venv $(VENV)/checkov
	$(VENV)/checkov/bin/pip install --quiet uv
	$(VENV)/checkov/bin/uv pip install --quiet --python $(VENV)/checkov/bin/python checkov==3.2.533
	COSTOPT_CHECKOV=$(VENV)/checkov/bin/checkov $(BIN)/python -m pytest tests/terraform/test_modules.py -k checkov

focus: $(VENV)/.dev  ## the FOCUS export with the official validator, in an environment of its own
	$(FOCUS_PYTHON) -m venv $(VENV)/focus
	$(VENV)/focus/bin/pip install --quiet focus-validator==2.2.1 'pyarrow<22'
	COSTOPT_FOCUS_VALIDATOR=$(abspath $(VENV))/focus/bin/focus-validator \
		$(BIN)/python -m pytest tests/unit/render/test_focus.py -k validator

audit: $(VENV)/.dev  ## known vulnerabilities of the pinned dependencies; asks the index, which must know them
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip -r constraints.txt

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) dist build .costopt demo-output
