# watchlab needs Go 1.26 and make. Everything else is a pinned Go module that
# the first run fetches.
GO      ?= go
BIN     := bin
COMMIT  := $(shell git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null)
LDFLAGS := -X watchlab/loadgen/cli.commit=$(COMMIT)

.DEFAULT_GOAL := help
.PHONY: help build run test bench lint clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the command, bin/watchlab
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/watchlab ./loadgen

run: build ## Replay the recorded streams through every variant and compare them (2 minutes)
	$(BIN)/watchlab run

test: ## Run all tests with the race detector, the nested module of kubelet's own merge included
	$(GO) vet ./...
	$(GO) test -race ./...
	cd bench/kubelet && $(GO) vet ./... && $(GO) test -race ./...

bench: ## Run the benchmarks, 6 times each, into bin/bench.txt and compare variants with benchstat
	@mkdir -p $(BIN)
	$(GO) test -run '^$$' -bench . -count 6 ./bench | tee $(BIN)/bench.txt
	cd bench/kubelet && $(GO) test -run '^$$' -bench . -count 6 . | tee -a ../../$(BIN)/bench.txt
	$(GO) tool benchstat -row .name -col /impl $(BIN)/bench.txt

lint: ## Run the linters, built from the version pinned in scripts/lint/go.mod
	cd scripts/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(BIN)/golangci-lint run ./...
	cd bench/kubelet && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...

clean: ## Remove what was built; results are kept
	rm -rf $(BIN)
