# watchlab needs Go 1.26 and make. Everything else is a pinned Go module that
# the first run fetches.
GO      ?= go
BIN     := bin
COMMIT  := $(shell git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null)
LDFLAGS := -X watchlab/cmd/watchlab/cli.commit=$(COMMIT)

.DEFAULT_GOAL := help
.PHONY: help build run test mutants soak e2e control-plane dashboards dashboards-up dashboards-down bench image kind-up image-load kind-run kind-results kind-clean kind-down kwok-nodes e2e-kind lint clean

# NESTED are the modules that keep heavy dependencies out of the root's go.mod.
NESTED := bench/kubelet impls/informer/controllerruntime scripts/image
# E2E are those that run real programs, which they build into PROGRAMS.
E2E      := bench/e2e loadgen/apiserver/e2e bench/report/browser dashboards/e2e bench/telemetry/e2e
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
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/watchlab ./cmd/watchlab

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
ARCHIVE   ?= $(BIN)/watchlab.tar

image: ## Build the container image as an OCI archive, bin/watchlab.tar, without Docker (IMAGE=watchlab:dev)
	@set -e; for arch in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '-s -w $(LDFLAGS)' -o $(BIN)/linux-$$arch/watchlab ./cmd/watchlab; done
	cd scripts/image && $(GO) run . --ref $(IMAGE) --revision '$(COMMIT)' --out $(abspath $(ARCHIVE)) \
		$(foreach arch,$(PLATFORMS),--binary linux/$(arch)=$(CURDIR)/$(BIN)/linux-$(arch)/watchlab)

# CLUSTER is a kind cluster, with its context kind-CLUSTER: brought up by kind-up, with
# so many WORKERS beside the control plane, or by other means.
CLUSTER ?= watchlab
WORKERS ?= 2
# The run: FLAGS are those of `watchlab run`, RUN its name.
RUN     ?= kind
SHARDS  ?= 4
MODE    ?= self
OVERLAY ?= kind
STORM   ?= recorded-gang
FLAGS   ?= --family deltafifo --delivery in-order --impl clientgo-realfifo-batch,cond,ring --pipeline informer --storm $(STORM) --pace max,4000 --rounds 3
# NODES is how many nodes without kubelets there are to be.
NODES   ?= 1000
KIND    ?= $(or $(shell command -v kind 2>/dev/null),$(CURDIR)/$(BIN)/kind)
# KUBE is a kubeconfig of the cluster alone, and IN says where a verb of watchlab goes.
KUBE    := $(BIN)/kubeconfig/$(CLUSTER)
IN       = --kubeconfig $(KUBE) --context kind-$(CLUSTER)
ARCH    ?= $(shell $(GO) env GOHOSTARCH)
export KIND

$(CURDIR)/$(BIN)/kind: scripts/kind/build/kind/go.mod
	cd scripts/kind/build/kind && $(GO) build -trimpath -o $@ sigs.k8s.io/kind

kind-up: $(KIND) ## Bring up a kind cluster, if it isn't there (CLUSTER=watchlab, WORKERS=2, KIND_IMAGE=, KIND_CONFIG=)
	scripts/kind/up.sh $(CLUSTER) $(WORKERS)

image-load: $(KIND) ## Build the image for this machine's architecture (ARCH=) and load it into the kind cluster
	$(MAKE) --no-print-directory image PLATFORMS=$(ARCH) ARCHIVE=$(BIN)/watchlab-$(ARCH).tar
	$(KIND) load image-archive $(BIN)/watchlab-$(ARCH).tar --name $(CLUSTER)

.PHONY: kubeconfig
kubeconfig: $(KIND)
	@scripts/kind/kubeconfig.sh $(CLUSTER) $(KUBE)

kind-run: build kubeconfig ## Play a storm from SHARDS=4 pods of the cluster (FLAGS=, STORM=recorded-gang, MODE=self, OVERLAY=kind, RUN=kind)
	$(BIN)/watchlab cluster run $(IN) --name $(RUN) --overlay $(OVERLAY) --mode $(MODE) --shards $(SHARDS) --image $(IMAGE) -- $(FLAGS)

kind-results: build kubeconfig ## Merge what the pods measured into results/, and take the run out of the cluster
	$(BIN)/watchlab cluster collect $(IN) --name $(RUN)
	$(BIN)/watchlab cluster clean $(IN) --name $(RUN)

kind-clean: build kubeconfig ## Take everything of ours out of the cluster
	$(BIN)/watchlab cluster clean $(IN) --all

kind-down: $(KIND) ## Delete the kind cluster
	$(KIND) delete cluster --name $(CLUSTER)
	rm -f $(KUBE)

kwok-nodes: kubeconfig ## Have NODES=1000 nodes without kubelets in the cluster, 0 for none; overlay kwok keeps them alive
	$(GO) run ./scripts/kind/nodes $(IN) --count $(NODES)

e2e-kind: build kubeconfig ## Prove it all in the cluster CLUSTER=watchlab, with an image of this commit; PART=Observed for less (docs/kind.md)
	cd scripts/kind/e2e && $(GO) vet ./... && CLUSTER=$(CLUSTER) PROGRAMS=$(PROGRAMS) $(GO) test -count 1 -timeout 90m -v $(if $(PART),-run TestKind/$(PART)) ./...

lint: ## Run the linters, built from the version pinned in scripts/lint/go.mod
	cd scripts/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	$(BIN)/golangci-lint run --allow-parallel-runners ./...
	@set -e; for m in $(NESTED) $(E2E) loadgen/apiserver/e2e/kubectl bench/telemetry/e2e/collector scripts/kind/e2e; do (cd $$m && $(CURDIR)/$(BIN)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); done

clean: ## Remove what was built; results are kept
	rm -rf $(BIN)
