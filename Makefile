# watchlab needs Go 1.26 and make. Everything else is a pinned Go module that
# the first run fetches.
GO      ?= go
BIN     := bin
COMMIT  := $(shell git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null)
LDFLAGS := -X watchlab/loadgen/cli.commit=$(COMMIT)

.DEFAULT_GOAL := help
.PHONY: help build run test mutants soak e2e control-plane dashboards dashboards-up dashboards-down bench image lint clean

# NESTED are the modules that keep heavy dependencies out of the root's go.mod.
NESTED := bench/kubelet impls/informer/controllerruntime scripts/image
# E2E are those that run real programs, which they build into PROGRAMS.
E2E      := bench/e2e loadgen/apiserver/e2e bench/report/browser dashboards/e2e loadgen/telemetry/e2e
PROGRAMS := $(CURDIR)/$(BIN)/programs
# FAULTS is how long each half of make e2e's informers go through faults.
FAULTS ?= 5m
# SOAK is how long make soak lasts.
SOAK ?= 10m
# BUDGET is what make bench has for its runs.
BUDGET ?= 28m

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the command, bin/watchlab
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/watchlab ./loadgen

run: build ## Replay the recorded streams through every variant and compare them (5 minutes)
	$(BIN)/watchlab run

test: ## Run all tests with the race detector, those of the nested modules included
	$(GO) vet ./...
	$(GO) test -race ./...
	@set -e; for m in $(NESTED); do echo "$$m:"; (cd $$m && $(GO) vet ./... && $(GO) test -race ./...); done

mutants: ## Break the variants on purpose and see the tests catch it (impls/conformance/mutants.md)
	$(GO) test -tags mutants -run '^TestMutants$$' ./impls/...

soak: ## Play all variants for ten minutes (SOAK=10m) with panics, Close and Replace: nothing lost, memory flat
	$(GO) test -count 1 -timeout 0 -v -run '^TestSoak$$' ./impls/conformance/soak -soak $(SOAK)

e2e: build ## Run real kubectl, kube-apiserver, controller-runtime, Chromium, Prometheus and an OpenTelemetry collector; informers through faults (FAULTS=5m each)
	@scripts/chromium.sh >/dev/null
	@scripts/prometheus.sh
	@set -e; for m in $(E2E); do echo "$$m:"; (cd $$m && $(GO) vet ./... && \
		WATCHLAB=$(CURDIR)/$(BIN)/watchlab WATCHLAB_PROGRAMS=$(PROGRAMS) $(GO) test -count 1 -timeout 30m ./...); done
	$(GO) test -count 1 -timeout 0 -run '^TestOverTCP$$' ./loadgen/source/guarantee -faults $(FAULTS)
	cd impls/informer/controllerruntime && $(GO) test -count 1 -timeout 0 -run '^TestCachesThroughFaults$$' . -faults $(FAULTS)

control-plane: ## Run etcd, kube-apiserver, controller-manager and scheduler on loopback until Ctrl-C
	cd bench/e2e && $(GO) run . --programs $(PROGRAMS)

dashboards: ## Write the Grafana dashboards, rules and runbooks that dashboards/*.go define
	$(GO) run ./dashboards/generate dashboards

dashboards-up: ## Start Prometheus, Grafana, Pyroscope, Tempo and an OTel collector in Docker, on the loopback
	docker compose -f dashboards/compose/compose.yaml up -d --wait
	@echo 'Grafana: http://127.0.0.1:3000  Now: bin/watchlab run --metrics-addr 127.0.0.1:9464'

dashboards-down: ## Stop them; what they stored is kept
	docker compose -f dashboards/compose/compose.yaml down

bench: build ## Answer the research questions: all their runs and a page each, into results/, within 30 minutes (BUDGET=28m)
	$(BIN)/watchlab study --budget $(BUDGET)

# IMAGE is the image's name and tag; PLATFORMS are what it is built for.
IMAGE     ?= watchlab:dev
PLATFORMS ?= amd64 arm64

image: ## Build the container image as an OCI archive, bin/watchlab.tar, without Docker (IMAGE=watchlab:dev)
	@set -e; for arch in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '-s -w $(LDFLAGS)' -o $(BIN)/linux-$$arch/watchlab ./loadgen; done
	cd scripts/image && $(GO) run . --ref $(IMAGE) --revision '$(COMMIT)' --out $(CURDIR)/$(BIN)/watchlab.tar \
		$(foreach arch,$(PLATFORMS),--binary linux/$(arch)=$(CURDIR)/$(BIN)/linux-$(arch)/watchlab)

lint: ## Run the linters, built from the version pinned in scripts/lint/go.mod
	cd scripts/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	@set -e; for m in $(NESTED) $(E2E) loadgen/apiserver/e2e/kubectl loadgen/telemetry/e2e/collector; do (cd $$m && $(CURDIR)/$(BIN)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); done

clean: ## Remove what was built; results are kept
	rm -rf $(BIN)
