# watchlab needs Go 1.26 and make. All else is a pinned Go module that the first build
# fetches.
GO      ?= go
BIN     := bin
# The command, its image and all tests are compiled alike, so that each package is compiled once.
export GOFLAGS += -trimpath
export CGO_ENABLED ?= 0
COMMIT  := $(shell git describe --always --exclude '*' --abbrev=12 --dirty 2>/dev/null)
LDFLAGS := -X watchlab/cmd/watchlab/cli.commit=$(COMMIT)

.DEFAULT_GOAL := help
.PHONY: help build run bench results-archive test race smoke nightly e2e mutants soak fuzz chaos load versions lint sbom vuln reproducible example control-plane dashboards manifests dashboards-up dashboards-down image kind-up image-load kind-run kind-results kind-clean kind-down kwok-nodes e2e-kind clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the command, bin/watchlab
	@test -e $(BIN)/watchlab || echo 'Building $(BIN)/watchlab. The first build fetches and compiles its modules, which takes a few minutes.'
	@$(GO) build -trimpath -ldflags '-s -w $(LDFLAGS)' -o $(BIN)/watchlab ./cmd/watchlab

run: build ## Compare an informer, the queue and the kubelet with upstream's, 85 s
	@$(BIN)/watchlab run

# BUDGET is the time of each experiment of make bench.
BUDGET ?= 2m

bench: build ## Play the experiments into results/ and judge their claims, 40 minutes (BUDGET=2m)
	$(BIN)/watchlab reproduce --budget $(BUDGET) bench/experiment/experiments

# RESULTS is a folder of results/, the newest by default.
RESULTS ?= $(notdir $(patsubst %/,%,$(lastword $(sort $(wildcard results/*/)))))

results-archive: ## Pack a results folder for a release, bin/RESULTS.tar.gz (RESULTS=newest)
	@mkdir -p $(BIN) && test -d 'results/$(RESULTS)/'
	tar -C results -czf '$(BIN)/$(RESULTS).tar.gz' '$(RESULTS)'

test: ## Run all tests; make lint vets
	$(GO) test -vet=off -timeout 20m ./...
	cd scripts/tools && $(GO) test -vet=off ./image

# RACE are the packages in which goroutines meet: their code has a go statement or uses
# sync. The command is not among them: its tests play whole runs through those that are.
RACE = $(patsubst %/,./%,$(sort $(dir $(shell grep -rlE --include='*.go' --exclude='*_test.go' \
	'^[[:space:]]*go [a-z]|"sync(/atomic)?"' impls loadgen bench --exclude-dir=kubelet --exclude-dir=e2e --exclude-dir=clientgo))))

race: ## Test with the race detector where goroutines meet
	CGO_ENABLED=1 $(GO) test -vet=off -race -short -timeout 20m $(RACE)

# STAGES are those of scripts/nightly.sh, which names their commands and variables; all by default.
STAGES ?=

nightly: ## Play all that CI leaves out, and write what failed to results/, two hours (STAGES=soak)
	scripts/nightly.sh $(STAGES)

mutants: ## Break the variants on purpose; the tests must fail (impls/*/export_mutants_test.go)
	$(GO) test -timeout 30m -tags mutants -run '^TestMutants$$' ./impls/...

# SOAK is how long make soak plays; EVENTS is how many events of each variant instead.
SOAK   ?= 10m
EVENTS ?=

soak: ## Play all variants with panics, Close and Replace; memory must stay flat (SOAK=10m, EVENTS=1e8)
	$(GO) test -count 1 -timeout 0 -v -run '^TestSoak$$' ./impls/conformance $(if $(EVENTS),-events $(EVENTS),-soak $(SOAK))

# CHAOS is how long make chaos begins rounds of all faults. SEED is drawn by default. STEP plays one step alone.
CHAOS ?= 10m
SEED  ?= 0
STEP  ?=

chaos: build ## Kill, interrupt and starve the command: nothing that was finished is lost (CHAOS=10m, SEED=, STEP=)
	cd bench/e2e && WATCHLAB=$(CURDIR)/$(BIN)/watchlab $(GO) test -count 1 -timeout 0 -parallel 8 -v -run '^TestChaos$$' ./chaos \
		-chaos $(CHAOS) -seed $(SEED) -step '$(STEP)'

# FUZZTIME is the time of each target, FUZZ are the targets, all by default.
FUZZTIME ?= 10m
FUZZ     ?=

fuzz: ## Fuzz every parser and print a table, for each target (FUZZTIME=10m, FUZZ=FuzzReader)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh $(FUZZ)

# STORMS is how long make load plays storms at the end.
STORMS ?= 3m

load: ## Hold 10,000 watches of 1,000,000 objects, then play storms; memory must stay flat (STORMS=30m)
	$(GO) test -count 1 -timeout 0 -v -run '^(TestLoad|TestStormSoak)$$' ./loadgen/apiserver -load.watches 10000 -load.objects 1000000 -load.soak $(STORMS)

# BASELINES are named as clientgo@0.33/realfifo, those of each change by default.
BASELINES ?=

versions: build ## Compare client-go's informers, minor by minor, into results/, 10 minutes (ROUNDS=6, BASELINES=)
	@set -e; out='$(CURDIR)/results/$(shell date +%F)-$(COMMIT)-versions'; \
		(cd bench/clientgo && $(GO) run . -rounds $(or $(ROUNDS),6) $(if $(BASELINES),-baselines '$(BASELINES)') -out "$$out"); \
		$(BIN)/watchlab report "$$out"

# SMOKE are tests of bench/e2e, by package: one for each claim of README, and one of each real program.
SMOKE_PROGRAMS := etcd kube-apiserver kubectl
SMOKE := .:TestCollectFromAPIServer apiserver:TestKubectl controllerruntime:TestForManager planted:TestCommand \
	fidelity:TestFidelity browser:TestFirstScreen dashboards:TestRun upstream:TestClientGo outside:TestVariant

smoke: build ## Test each claim of README once with a real program
	@scripts/chromium.sh >/dev/null
	@scripts/prometheus.sh
	@set -e; for p in $(SMOKE_PROGRAMS); do scripts/program.sh $$p; done
	cd bench/e2e && WATCHLAB=$(CURDIR)/$(BIN)/watchlab $(GO) test -vet=off -short -count 1 -timeout 20m \
		-run '^($(subst $() ,|,$(foreach s,$(SMOKE),$(lastword $(subst :, ,$(s))))))$$' $(sort $(foreach s,$(SMOKE),./$(firstword $(subst :, ,$(s)))))
	cd bench/kubelet && $(GO) test -vet=off -timeout 20m ./...

# FAULTS is how long informers meet faults. E2E are flags of go test.
FAULTS ?= 5m
E2E    ?=
# PROGRAMS are those of the e2e tests, built beforehand, so that no test waits for it.
PROGRAMS := etcd kubectl kube-apiserver kube-controller-manager kube-scheduler otelcol prometheus \
	controller-runtime-builtins cert-manager-controller

e2e: build ## Test with real programs and a real kubelet (FAULTS=5m)
	@scripts/chromium.sh >/dev/null
	@scripts/prometheus.sh
	@set -e; for p in $(PROGRAMS); do scripts/program.sh $$p; done
	cd bench/e2e && $(GO) vet ./... && WATCHLAB=$(CURDIR)/$(BIN)/watchlab $(GO) test -count 1 -timeout 60m $(E2E) ./...
	cd bench/e2e && $(GO) test -count 1 -timeout 0 -run '^TestSoak$$' ./controllerruntime -soak $(FAULTS)
	cd bench/e2e && $(GO) test -run '^$$' -bench . -benchtime 1x ./controllerruntime
	$(GO) test -count 1 -timeout 0 -run '^TestOverTCP$$' ./loadgen/fault -faults $(FAULTS)
	@set -e; for m in bench/kubelet bench/clientgo; do \
		(cd $$m && $(GO) vet ./... && $(GO) test ./... && $(GO) test -run '^$$' -bench . -benchtime 1x ./...); done

lint: ## Run golangci-lint
	@set -e; lint=$$(scripts/program.sh golangci-lint); for m in . bench/kubelet bench/clientgo bench/e2e scripts/tools; do \
		echo "golangci-lint run $$m"; (cd $$m && $(GO) list -deps ./... >/dev/null && $$lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); done

# SBOM is the command that lists the modules of a binary beside it.
SBOM = "$$(scripts/program.sh cyclonedx-gomod)" bin -json -std -noserial -notimestamp -output $(1).cdx.json $(1)

sbom: build ## List the modules of bin/watchlab in bin/watchlab.cdx.json
	@$(call SBOM,$(BIN)/watchlab)

vuln: build ## Run govulncheck on bin/watchlab (GOVULNDB=https://… or file:///…)
	scripts/vuln.sh $(BIN)/watchlab

reproducible: ## Build the image twice, once without a build cache; digests must be equal, and as in bin/image-digest.txt
	scripts/reproducible.sh

control-plane: ## Run a real Kubernetes control plane on the loopback until Ctrl-C (CONTROLLERS=false: etcd and kube-apiserver alone)
	cd bench/e2e && $(GO) test -count 1 -timeout 0 -v -run '^TestHold$$' ./controlplane -hold -controllers=$(or $(CONTROLLERS),true)

dashboards: ## Generate the Grafana dashboards, rules and runbooks from their YAML
	$(GO) run ./dashboards

manifests: ## Build the manifests of load Jobs from the folders for kustomize in scripts/deploy
	@set -e; kubectl=$$(scripts/program.sh kubectl); for f in base overlays/kind overlays/kwok overlays/large; do \
		$$kubectl kustomize scripts/deploy/$$f >bench/fleet/built/$$(basename $$f).yaml; done

dashboards-up: ## Start Prometheus, Grafana, Pyroscope, Tempo and an OTel collector in Docker
	docker compose -f dashboards/compose/compose.yaml up -d --wait
	@echo 'Grafana: http://127.0.0.1:3000  Now: bin/watchlab run --metrics-addr 127.0.0.1:9464'

dashboards-down: ## Stop them and keep their data
	docker compose -f dashboards/compose/compose.yaml down

# IMAGE is the name and tag of the image; PLATFORMS are its architectures.
IMAGE     ?= watchlab:dev
PLATFORMS ?= amd64 arm64
ARCHIVE   ?= $(BIN)/watchlab.tar

image: ## Build the container image with its SBOM as an OCI archive, bin/watchlab.tar, without Docker (IMAGE=watchlab:dev)
	@set -e; for arch in $(PLATFORMS); do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false -ldflags '-s -w $(LDFLAGS)' -o $(BIN)/linux-$$arch/watchlab ./cmd/watchlab; \
		$(call SBOM,$(BIN)/linux-$$arch/watchlab); done
	cd scripts/tools && $(GO) run ./image --ref $(IMAGE) --revision '$(COMMIT)' --out $(abspath $(ARCHIVE)) \
		$(foreach arch,$(PLATFORMS),--binary linux/$(arch)=$(CURDIR)/$(BIN)/linux-$(arch)/watchlab)

# CLUSTER is a kind cluster with the context kind-CLUSTER. make kind-up creates it with
# WORKERS nodes beside the control plane.
CLUSTER ?= watchlab
WORKERS ?= 2
# FLAGS of watchlab run, and the name, pods, mode and overlay of the load Job. Four pods on two
# cores release events late, whatever the rate: the lag budget is for them, not for figures.
RUN     ?= kind
PODS    ?= 4
OVERLAY ?= kind
STORM   ?= recorded-gang
FLAGS   ?= --family deltafifo --delivery in-order --impl clientgo-realfifo-batch,cond,ring --pipeline informer --storm $(STORM) --pace max,1000 --lag-budget 50ms --rounds 5
# NODES is the number of nodes without kubelets.
NODES   ?= 1000
KIND     = $(or $(shell command -v kind 2>/dev/null),$(shell scripts/program.sh kind))
# KUBE is a kubeconfig of this cluster alone; IN selects it for watchlab's verbs.
KUBE    := $(BIN)/kubeconfig/$(CLUSTER)
IN       = --kubeconfig $(CURDIR)/$(KUBE) --context kind-$(CLUSTER)
ARCH    ?= $(shell $(GO) env GOHOSTARCH)

kind-up: ## Create a kind cluster if it is missing (CLUSTER=watchlab, WORKERS=2, KIND_IMAGE=, KIND_CONFIG=)
	KIND=$(KIND) scripts/kind/up.sh $(CLUSTER) $(WORKERS)

image-load: ## Build the image for one architecture and load it into the kind cluster (ARCH=)
	$(MAKE) --no-print-directory image PLATFORMS=$(ARCH) ARCHIVE=$(BIN)/watchlab-$(ARCH).tar
	$(KIND) load image-archive $(BIN)/watchlab-$(ARCH).tar --name $(CLUSTER)

.PHONY: kubeconfig
kubeconfig:
	@KIND=$(KIND) scripts/kind/kubeconfig.sh $(CLUSTER) $(KUBE)

kind-run: build kubeconfig ## Play a storm from PODS=4 pods (FLAGS=, STORM=recorded-gang, OVERLAY=kind, RUN=kind)
ifeq ($(OVERLAY),kind-observed)
	$$(scripts/program.sh kubectl) kustomize scripts/deploy/overlays/$(OVERLAY) >$(BIN)/$(OVERLAY).yaml
	$(BIN)/watchlab cluster run $(IN) --name $(RUN) --overlay $(BIN)/$(OVERLAY).yaml --pods $(PODS) --image $(IMAGE) -- $(FLAGS)
else
	$(BIN)/watchlab cluster run $(IN) --name $(RUN) --overlay $(OVERLAY) --pods $(PODS) --image $(IMAGE) -- $(FLAGS)
endif

kind-results: build kubeconfig ## Merge the pods' results into results/ and delete the run from the cluster
	$(BIN)/watchlab cluster collect $(IN) --name $(RUN)
	$(BIN)/watchlab cluster clean $(IN) --name $(RUN)

kind-clean: build kubeconfig ## Delete all of watchlab from the cluster
	$(BIN)/watchlab cluster clean $(IN) --all

kind-down: ## Delete the kind cluster
	$(KIND) delete cluster --name $(CLUSTER)
	rm -f $(KUBE)

kwok-nodes: kubeconfig ## Scale the nodes without kubelets; overlay kwok keeps them alive (NODES=1000)
	KUBECTL=$(or $(shell command -v kubectl 2>/dev/null),$(shell scripts/program.sh kubectl)) scripts/kind/nodes.sh $(NODES) $(IN)

e2e-kind: build kubeconfig ## Test all of this in the kind cluster (CLUSTER=watchlab, PART=Observed)
	cd bench/e2e && $(GO) vet ./kind/... && CLUSTER=$(CLUSTER) KIND=$(KIND) $(GO) test -count 1 -timeout 90m -v $(if $(PART),-run TestKind/$(PART)) ./kind

clean: ## Delete all that was built; results stay
	rm -rf $(BIN)
