# Holdfast. `make` lists the targets. Needs Go; everything else that the targets
# use is built from pinned versions (tools/) when it is first needed.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Whatever the caller's setting, the targets work in the workspace; each module's own go.mod is
# tried by scripts/each.
unexport GOWORK

GO_FILES = git ls-files --cached --others --exclude-standard -z -- '*.go'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## run the demonstration: broker, sender, receiver, a kill and a recovery
	go run ./cmd/holdfast demo

.PHONY: test
test: ## run all tests of all modules with the race detector, at reduced counts
	@scripts/test

.PHONY: soak
soak: ## run all tests at full counts (hours); the log goes to bin/soak.log
	@mkdir -p bin
	HOLDFAST_SOAK=1 scripts/test 2>&1 | tee bin/soak.log

.PHONY: bench
bench: ## run the Go benchmarks of all modules
	RACE=0 TESTFLAGS="-run ^$$ -bench . -benchmem" scripts/test

# What is chosen of it, e.g. make bench-peers PEERS='-runs 3 -duration 2s -peers kafka,redis' (-add adds the runs to the table that is there), and where the
# table goes.
PEERS ?=
PEERS_OUT ?= bin/peers-result

.PHONY: bench-peers
bench-peers: build ## measure Holdfast and other queues in turns (PEERS='-runs 3 -duration 2s' for a short form); an hour and a half on a quiet machine
	bench/peers/servers/get bin/peers
	go build -o bin/bench-peers ./bench/peers
	bin/bench-peers -holdfast bin/holdfast -servers bin/peers -dir bin -out $(PEERS_OUT) $(PEERS)

.PHONY: fuzz
fuzz: ## fuzz every target of every module, for FUZZTIME (30s) each
	@scripts/fuzz

.PHONY: build
build: ## build bin/holdfast
	go build -trimpath -o bin/holdfast ./cmd/holdfast

.PHONY: check
check: fmt-check rules build-each vet tidy-check lint test ## everything that CI checks

.PHONY: fmt
fmt: ## format all Go files
	$(GO_FILES) | xargs -0 -r gofmt -s -w

.PHONY: fmt-check
fmt-check: ## fail if a Go file is not formatted
	@unformatted=$$($(GO_FILES) | xargs -0 -r gofmt -s -l); \
	if [[ -n $$unformatted ]]; then printf 'not formatted (make fmt does it):\n%s\n' "$$unformatted"; exit 1; fi

.PHONY: rules
rules: ## check the project's own rules: layers, purity, sizes, doc comments (internal/lint)
	go test -count=1 ./internal/lint

.PHONY: build-each
build-each: ## build each module by its own go.mod (GOWORK=off)
	@scripts/each go build ./...

.PHONY: vet
vet: ## go vet each module, tests included
	@scripts/each go vet ./...

.PHONY: tidy
tidy: ## tidy each module's go.mod
	@scripts/each go mod tidy

.PHONY: tidy-check
tidy-check: ## fail if a go.mod or go.sum is not tidy
	@scripts/each go mod tidy -diff

.PHONY: lint
lint: ## golangci-lint, pinned by tools/lint, on each module
	@scripts/each "$(CURDIR)/scripts/tool" lint golangci-lint run --config "$(CURDIR)/.golangci.yaml" ./...

.PHONY: proto
proto: ## generate the code of the admin calls anew, with pinned tools
	cd rpc/adminpb/proto && ../../../scripts/tool buf buf lint && ../../../scripts/tool buf buf generate

.PHONY: clean
clean: ## remove what the targets built
	rm -rf bin
