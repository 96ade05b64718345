# Requires Go, gcc, make, bash and npm. npm downloads the ONNX Runtime library once, and a Chromium for the tests if none is
# installed. `make help` lists the targets.

STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
# It ends a test that hangs: on a busy machine tests take many times as long as alone.
TESTTIME ?= 60m
# The packages that take or wait longest begin first.
LONGEST = $(addprefix promptfed/tools/e2e/,chaos attack program)
TESTED = $(LONGEST) $$(go list ./... | grep -vx $(addprefix -e ,$(LONGEST)))
# Many tests wait for processes, deadlines and slow connections while others compute.
ABREAST = $(shell n=$$(getconf _NPROCESSORS_ONLN || echo 2); echo -p $$((n + 1)) -parallel $$((2 * n)))
TESTFLAGS ?=
FUZZTIME ?= 30s
RUNS ?= 20
PACKAGES ?= ./runtime/... ./models/... ./federation/...
COUNT ?= 24
SEED ?= 1
PYTHON ?= /usr/bin/python3
VOCAB ?= ../shared/data/clip-vocab/bpe_simple_vocab_16e6.txt.gz
# The programs hold no debugging information, and compiling takes an eighth less time without it.
BUILD = go build -trimpath -gcflags=all=-dwarf=false -buildvcs=false -ldflags "-s -w -X promptfed/runtime/version.stamp=$(COMMIT)" -o bin/
COMMIT = $(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)
SWEEPS = $(patsubst configs/%.yaml,smoke/%,$(shell grep -l '^sweep:' $(foreach folder,papers/* pitfalls reproduce synthetic field,\
	configs/$(folder)/*.yaml)))
IMAGES ?= ../shared/data/pacs

.DEFAULT_GOAL := help
.PHONY: help run smoke $(SWEEPS) methods pitfalls terms test test-cuda build release wheel python reproduce library library-cuda browser check static tests vet \
	format lint rules generate stale site deploy bench fuzz mutants chaos golden towers flower soak probes clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## train the demo's methods on synthetic images, print their table, write runs/demo
	@rm -rf runs/demo
	bin/promptfed run configs/demo/*.yaml --out runs/demo

smoke: $(SWEEPS) ## run the small form of every sweep in configs/papers, pitfalls, reproduce, synthetic and field, into runs/smoke

$(SWEEPS): smoke/%: build
	@out=runs/smoke/$*; rm -rf $$out; mkdir -p $$(dirname $$out); began=$$(date +%s); \
	if ! bin/promptfed sweep configs/$*.yaml --smoke --out $$out >$$out.log 2>&1; then \
		cat $$out.log; echo "make smoke: configs/$*.yaml failed" >&2; exit 1; \
	fi; \
	echo "$$(tail -n 1 $$out.log), $$(($$(date +%s) - began)) s"; rm $$out.log

# Without the samples of real sets (docs/results.md), only the synthetic tasks.
methods: build ## train every method on six tasks with three seeds, print tables and ranks (docs/results.md), write runs/methods
	bin/promptfed sweep configs/field/results.yaml --out runs/methods --force \
		$(if $(wildcard ../shared/data/pacs),,--keep 'task=label skew,few shots,domain skew')

terms: build ## measure the terms of every loss (table of docs/terms.md), write runs/terms
	@rm -rf runs/terms
	@tools/terms.sh

probes: library ## measure what uploads of prompts reveal (tables of docs/robustness.md)
	go run ./tools/lab/probes

pitfalls: build ## reproduce known errors of published results (docs/pitfalls.md), write runs/pitfalls
	@rm -rf runs/pitfalls; mkdir -p runs/pitfalls
	@for file in configs/pitfalls/*.yaml; do \
		out=runs/pitfalls/$$(basename $$file .yaml); began=$$(date +%s); \
		if ! bin/promptfed sweep $$file --out $$out >$$out.log 2>&1; then cat $$out.log; echo "make pitfalls: $$file failed" >&2; exit 1; fi; \
		echo "$$file, $$(($$(date +%s) - began)) s"; sed '/^pitfall-/d' $$out.log; echo; \
	done

test: library browser ## run all tests
	go test -timeout $(TESTTIME) $(ABREAST) $(TESTFLAGS) $(TESTED)
	@echo "make test: all packages passed"

# The library is fetched meanwhile.
build: ## build bin/promptfed, with the ONNX Runtime library beside it
	@echo "building bin/promptfed: about a minute on two cores if Go's build cache is empty, else seconds"
	@tools/fetch-onnxruntime.sh & fetch=$$!; $(BUILD) ./tools/promptfed; built=$$?; wait $$fetch && exit $$built

# PLATFORMS="linux/amd64" builds fewer. tools/release/try.sh runs the archives.
release: ## build the archives and wheels of a release in build/release: linux/amd64, linux/arm64, windows/amd64 (needs Python with pip)
	@tools/release/build.sh $(PLATFORMS)

wheel: build ## build the Python package for this machine in build/wheel: pip install build/wheel/*.whl (needs Python with pip)
	@tools/release/wheel.sh

python: build ## install the wheel into build/python and run the tests of the Python package, or say that Python is missing
	@tools/python/test.sh

library:
	@tools/fetch-onnxruntime.sh

library-cuda: build ## fetch ONNX Runtime for CUDA 13 into bin/cuda (256 MB; needs pip), and list what is missing of CUDA and cuDNN
	@tools/fetch-onnxruntime-cuda.sh
	@bin/promptfed inspect --provider cuda || true

test-cuda: build ## run the method suite, parity tests, signals and threads on a GPU, or say that there is none
	@tools/test-cuda.sh

browser:
	@tools/fetch-chromium.sh

check: stale static rules tests ## run everything that CI runs, without deploy and smoke
	@echo "make check: all passed"

static: format vet lint ## run the checks that run no program of this module

# make static has run vet, and make rules tools/checks. BESIDE are packages of LONGEST that another process tests.
tests: TESTED = -vet=off $(filter-out $(BESIDE),$(LONGEST)) $$(go list ./... | grep -vx -e 'promptfed/tools/checks.*' $(addprefix -e ,$(LONGEST)))
tests: test ## run all tests but those of make rules, without vet

vet: ## run go vet
	go vet ./...

format: ## fail on Go files that gofmt would change
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "gofmt -w is needed for:" $$files >&2; exit 1; fi
	@echo "format: clean"

lint: ## run staticcheck, pinned
	go run $(STATICCHECK) ./...

rules: ## check dependency rules, sizes and tracked files
	go test -count=1 ./tools/checks/...

generate: library ## write generated files anew: tables of README.md and docs/, examples, the budget, what commands print with --json
	go run ./tools/gendocs
	UPDATE=1 go test -count=1 -run 'TestJSON$$' ./tools/e2e/program

stale: ## list generated files that are not current, and fail if there are any
	@go run ./tools/gendocs -check
	@echo "generated files: current"

deploy: ## check docs/deploy with Kubernetes' types and BuildKit's linter; build the image if there is a builder
	@tools/e2e/deploy/check.sh

site: build/.site/node_modules ## build the documentation as a web site with search, build/site, for any static file server
	@rm -rf build/.site/docs; cp -R README.md docs docs/site/. build/.site/
	@cd build/.site && node_modules/.bin/vitepress build
	@echo "build/site: for example, python3 -m http.server -d build/site"

build/.site/node_modules: docs/site/package-lock.json
	@mkdir -p build/.site; cp docs/site/package*.json build/.site/
	@cd build/.site && npm ci --ignore-scripts --loglevel=error --no-audit --no-fund && touch node_modules

bench: build ## measure the training step against its unoptimised form and this machine's matrix products
	bin/promptfed bench

fuzz: library ## run every fuzz target for FUZZTIME (30s) each
	@go test -list '^Fuzz' ./... | \
	awk '/^Fuzz/ { names[n++] = $$1 } $$1 == "ok" { for (i = 0; i < n; i++) print $$2, names[i] } !/^Fuzz/ { n = 0 }' | \
	{ count=0; while read -r package name; do \
		echo "$$package $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "$$package" </dev/null || exit 1; \
		count=$$((count + 1)); \
	done; [ $$count -gt 0 ] && echo "make fuzz: $$count targets passed"; }

# make mutants PACKAGES=./federation/engine/metrics COUNT=48 SEED=2
mutants: library ## plant COUNT (24) small faults drawn by SEED (1) into each of PACKAGES, and run the package's own tests on each
	@go run ./tools/checks/mutants -count $(COUNT) -seed $(SEED) $$(go list $(PACKAGES))

chaos: library ## kill, disconnect and damage runs of several processes, RUNS (20) times
	PROMPTFED_TEST_CHAOS_RUNS=$(RUNS) go test -count=1 -v -timeout 3h -run TestChaos ./tools/e2e/chaos

soak: library browser ## run for some hours what a release requires and CI has no time for; write tools/release/soak.txt
	@tools/soak.sh

# This target skips events, figures, parquet, significance and gradient_file: pip's tensorboard, scikit-learn, pyarrow, statsmodels, torch.
golden: ## re-create test data; needs Debian's python3-torch, python3-numpy, python3-pil, python3-scipy; pip's ftfy, regex, transformers, open_clip_torch
	@for script in tools/golden/*.py; do \
		case $$script in \
		*/architectures.py | */backbones.py | */events.py | */figures.py | */gradient_file.py | */parquet.py | */significance.py) continue ;; \
		*/trace.py | */step_torch.py | */sim_*.py | */libraries.py | */classifier.py | */methods_*.py | */exported_*.py) continue ;; \
		*/bundle.py | */tokenizer.py | */huggingface.py) argument=$(VOCAB) ;; \
		*/preprocess.py) argument=$(IMAGES) ;; \
		*/grad.py | */onnx_export.py) argument=runtime/grad/testdata ;; \
		*/towers.py) argument=full ;; \
		*) argument= ;; \
		esac; \
		echo "$(PYTHON) $$script $$argument"; \
		$(PYTHON) $$script $$argument || exit 1; \
	done

towers: build build/towers ## let other libraries compute their towers anew, and compare all of them (docs/models.md)
	HF_HUB_OFFLINE=1 build/towers/bin/python tools/golden/architectures.py
	UPDATE=1 go test -count=1 -v -run TestArchitectures ./models/bundle/converted
	PYTHONPATH=tools/python PATH=$$PWD/bin:$$PATH HF_HUB_OFFLINE=1 build/towers/bin/python tools/golden/backbones.py
	git status --short models docs

flower: build ## run one experiment in promptfed and in Flower as pip installs it, and compare the prompts (docs/coming-from.md)
	@docs/examples/flower/try.sh

build/towers: tools/golden/architectures.txt
	python3 -m venv build/towers && build/towers/bin/pip install --quiet -r $< && touch build/towers

# FLAGS="-data DIR -models DIR -smoke", or names of files, run something else: go run ./tools/lab/reproduce -h
reproduce: build ## run published zero-shot accuracies and a table of each paper (docs/papers.md), or list the downloads they need
	@go run ./tools/lab/reproduce $(FLAGS)

clean: ## remove bin/, build/ and runs/
	rm -rf bin build runs
