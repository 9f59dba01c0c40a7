# Everything is set up in .venv, from a bare checkout: Debian-like, Python 3.10 or newer with venv, make and g++.
#
#   make demo       train on real photos, beside a Pillow DataLoader; writes preview.png
#   make test       lint, types, and all tests but the long ones
#   make test-fast  the everyday subset
#   make test-long  kernels under sanitizers, NVRTC for every architecture, rehearsals of GPU runs, programs that train
#   make test-torchvision  pixels, draws, targets and presets beside torchvision; shards of other libraries; 5.5 GB
#   make test-pillow12  resize as Pillow 12 beside Pillow 12
#   make audit      known vulnerabilities of the packages in .venv; asks OSV over the network
#   make fuzz       100,000 damaged images in each of two modes, and as many data sets; ten minutes
#   make wheels     the source distribution and wheels for x86_64 and aarch64 in dist/; needs a cross compiler
#   make test-wheel    installs this machine's wheel and runs it without a compiler
#   make test-aarch64  kernel tests of the aarch64 wheel under QEMU; needs root; about half an hour
#   make test-clang    clang's kernels give the same bits
#   make bench      cuaug against its peers on the CPU, about half an hour; results in benchmarks/results
#   make try-tutorial  docs/tutorial.md in an environment of its own, from a wheel to a trained network
#   make docs     the documentation site, in site/; a warning is an error
#   make notebooks  the notebooks of examples/notebooks, each in a new kernel
#   make check-docs  opens its pages in Chromium: nothing is dead, or wider than a phone; minutes
#   make clean      remove what was built

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The development version. The CPU build, where the package index has one by that number.
TORCH ?= torch==2.13.0
# An environment of its own: torchvision needs the torch that it was built for. This CUDA build also runs on CPUs.
# litdata and mosaicml-streaming need torchvision, too; the latter also NumPy before 2.2, without wheels for Python 3.14,
# and Transformers before 5, which is in a folder of its own.
TORCHVISION_VENV := .venv-torchvision
TORCHVISION ?= torch==2.14.1 torchvision==0.29.1
# The site is built from the sources: no compiled code, no torch. Groups need pip 25.1.
DOCS_VENV := .venv-docs
# Wheels are built by an environment of its own, which needs no torch. Each compiler, native or cross, makes the wheel of
# its machine. The names are those of Debian and Ubuntu.
WHEELS_VENV := .venv-wheels
WHEEL_TEST_VENV := .venv-wheel-test
WHEEL_COMPILERS ?= x86_64-linux-gnu-g++ aarch64-linux-gnu-g++
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start Python hundreds of times: what it has compiled is kept, also where container images say otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all demo test test-fast test-long test-torchvision test-pillow12 lint audit fuzz wheels test-wheel \
	test-aarch64 test-clang bench try-tutorial notebooks docs check-docs clean
all: $(VENV)/installed-test

# One marker file for each set of extras; `pip install -e` also compiles the CPU kernels.
$(VENV)/installed-%: pyproject.toml setup.py $(wildcard kernels/* kernels/*/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$(TORCH)" numpy setuptools wheel
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[$*]"
	touch $@

demo: $(VENV)/installed-demo
	$(BIN)/python examples/train.py

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(wildcard kernels/*.h kernels/*/*.h kernels/*/*.cpp kernels/*/*.cu)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(wildcard .github/workflows/*.yml)
	$(BIN)/zizmor --offline --quiet --persona auditor --min-severity low .github

# A test process for each CPU, with one OpenMP thread: torch's threads would wait for each other in busy loops. `make
# test` has one more, as its tests wait for other programs a quarter of the time.
ONE_THREAD := OMP_NUM_THREADS=1
test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $$(($$(nproc) + 1)) --dist worksteal -m "not long"

test-long: $(VENV)/installed-test
	$(ONE_THREAD) $(BIN)/python -m pytest -n logical --dist worksteal -m long

test-fast: $(VENV)/installed-test
	$(ONE_THREAD) HYPOTHESIS_PROFILE=everyday $(BIN)/python -m pytest -n logical --dist worksteal -m "not slow and not long"

# OSV is asked for each package: an error, not a pass, where it cannot be reached. PyPI's own service would skip versions
# that it does not have, such as torch's CPU builds.
audit: $(VENV)/installed-test $(VENV)/installed-audit
	$(BIN)/pip-audit --vulnerability-service osv --skip-editable --progress-spinner off || \
		{ echo "make audit: a vulnerability was found, or OSV could not be reached: see above" >&2; exit 1; }

# A new seed each day; the output names it, and the command that repeats a failing case.
FUZZ_SEED ?= $(shell date +%Y%m%d)
fuzz: $(VENV)/installed-test
	CUAUG_FUZZ_CASES=100000 CUAUG_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest --timeout 10000 \
		-n logical tests/codec/test_fuzz.py tests/sources/test_fuzz.py tests/kernels/test_damaged_jpegs.py \
		tests/kernels/test_sanitizers.py::test_damaged_jpegs_are_decoded_cleanly_by_the_kernels_for_gpus

# The resize of Pillow 13 runs its passes in another order.
$(VENV)/pillow-12: $(VENV)/installed-test
	$(BIN)/pip install --quiet --upgrade --target $@ "pillow<13"
	touch $@

test-pillow12: $(VENV)/pillow-12
	PYTHONPATH=$(VENV)/pillow-12 $(ONE_THREAD) $(BIN)/python -m pytest -n logical --dist worksteal \
		tests/properties/test_pillow.py tests/loader/test_pillow_chain.py

$(TORCHVISION_VENV)/installed: Makefile
	test -x $(TORCHVISION_VENV)/bin/python || $(PYTHON) -m venv $(TORCHVISION_VENV)
	$(TORCHVISION_VENV)/bin/pip install --quiet $(TORCHVISION) numpy pillow pycocotools "nvidia-nvimgcodec-cu12>=0.9,<0.10" \
		"pytest>=8" pytest-timeout "pytest-xdist[psutil]>=3.5" "hypothesis>=6.100" \
		"webdataset>=1.0" "litdata>=0.2.76" "mosaicml-streaming>=0.13; python_version < '3.14'" \
		"transformers==4.57.6"
	$(TORCHVISION_VENV)/bin/pip install --quiet --target $(TORCHVISION_VENV)/transformers-5 transformers==5.24.0
	touch $@

# Python finds cuaug in the working directory, with the kernels that $(VENV) compiled.
test-torchvision: $(VENV)/installed-test $(TORCHVISION_VENV)/installed
	$(ONE_THREAD) $(TORCHVISION_VENV)/bin/python -m pytest -n logical --dist worksteal tests/torchvision tests/sources/test_building_shards.py
	PYTHONPATH=$(TORCHVISION_VENV)/transformers-5 $(ONE_THREAD) $(TORCHVISION_VENV)/bin/python -m pytest -n logical \
		--dist worksteal tests/torchvision/test_transformers.py

$(DOCS_VENV)/installed: pyproject.toml
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/pip install --quiet "pip>=25.1"
	$(DOCS_VENV)/bin/pip install --quiet --group docs
	touch $@

# Not --quiet: mkdocs would not count the warnings, of dead links and anchors, which `strict` makes errors of.
docs: $(DOCS_VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build

# Debian: apt install chromium chromium-driver
check-docs: docs
	$(DOCS_VENV)/bin/python docs/_website/check.py

$(WHEELS_VENV)/installed: pyproject.toml
	test -x $(WHEELS_VENV)/bin/python || $(PYTHON) -m venv $(WHEELS_VENV)
	$(WHEELS_VENV)/bin/pip install --quiet "pip>=25.1"
	$(WHEELS_VENV)/bin/pip install --quiet --group wheels
	touch $@

# Wheels are made from the source distribution; no cache of pip's: it does not know the compiler. auditwheel names a
# wheel after the oldest glibc that it runs with: another one than manylinux_2_28 ends this.
wheels: export PATH := $(CURDIR)/$(WHEELS_VENV)/bin:$(PATH)
wheels: $(WHEELS_VENV)/installed
	rm -rf dist build/wheels
	python -m build --sdist
	tag=$$(git tag --points-at HEAD 'v*' 2>/dev/null) && test -n "$$tag" || exit 0; \
		test -f dist/cuaug-$${tag#v}.tar.gz || { echo "the tag $$tag and cuaug.__version__ differ"; exit 1; }
	set -e; for compiler in $(WHEEL_COMPILERS); do \
		machine=$$($$compiler -dumpmachine | cut -d- -f1); \
		CXX=$$compiler pip wheel --no-cache-dir --no-deps --wheel-dir build/wheels dist/*.tar.gz; \
		auditwheel repair --only-plat --wheel-dir dist build/wheels/*_$$machine.whl; \
		auditwheel show dist/*-manylinux_2_28_$$machine.whl; \
	done

# A wheel needs no compiler: PATH has none.
test-wheel:
	rm -rf $(WHEEL_TEST_VENV) build/wheel-test
	$(PYTHON) -m venv $(WHEEL_TEST_VENV)
	$(WHEEL_TEST_VENV)/bin/pip install --quiet "$(TORCH)" dist/*_$$(uname -m).whl
	mkdir -p build/wheel-test
	cd build/wheel-test && PATH=$(CURDIR)/$(WHEEL_TEST_VENV)/bin python $(CURDIR)/tests/support/use_wheel.py

test-aarch64: $(VENV)/installed-test
	tests/support/aarch64.sh

test-clang: $(VENV)/installed-test
	CXX=clang++ $(BIN)/python -m pytest tests/kernels/test_compilers.py

bench: $(VENV)/installed-bench
	$(BIN)/python benchmarks/end_to_end.py --suite all --out benchmarks/results
	$(BIN)/python benchmarks/decode.py --out benchmarks/results
	$(BIN)/python benchmarks/first_batch.py --out benchmarks/results
	$(BIN)/python benchmarks/training_step.py --device cpu --out benchmarks/results
	$(BIN)/python benchmarks/tables.py
	$(BIN)/python benchmarks/plots.py

try-tutorial: $(VENV)/installed-test
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/tutorial .
	$(PYTHON) tests/tools/try_tutorial.py --wheels build/tutorial

notebooks: $(VENV)/installed-test
	$(BIN)/python tests/tools/notebooks.py

clean:
	rm -rf $(VENV) $(TORCHVISION_VENV) $(DOCS_VENV) $(WHEELS_VENV) $(WHEEL_TEST_VENV) site build dist *.egg-info
	rm -rf cuaug/_kernels.so demo-data bench-data preview.png
