# The targets with a ## are the ones to call; `make` lists them.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X github.com/fanout/fanout/internal/boot.version=$(VERSION)

GOLANGCI_VERSION    := 2.15.0
GOVULNCHECK_VERSION := 1.9.0
TOOLS := $(CURDIR)/.tools
RULES := deploy/prometheus

# What the generator reads, and what it writes.
GENERATED := internal/httpapi/api.gen.go

.DEFAULT_GOAL := help
.PHONY: help run demo build test test-cluster fuzz-short contract secrecy crash chaos chaos-short chaos-redrive runbook observe test-interop seeded screenshots loadtest bench bench-scale bench-cluster bench-micro oncall-scale oncall-drill soak capacity lint lint-go lint-rules vuln fmt generate check-generated tools clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- see it work: Go is all that is needed ---

run: ## the whole service with demo receivers, until Ctrl-C
	go run ./cmd/fanout dev

demo: ## the same as a play that ends by itself; non-zero if anything was wrong
	go run ./cmd/fanout dev --demo

build: ## static binaries in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# --- prove it ---

# CGO is on because the race detector needs it; what is shipped has it off.
test: ## all tests, with the race detector, in random order
	@scripts/need redis-server chromium gcc promtool
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 5m ./...
	cd bench && go test ./...

test-cluster: ## the scripts' contract and the end-to-end tests on a three-primary Redis Cluster
	@scripts/need redis-server
	go test -tags cluster -shuffle=on -timeout 5m -parallel 12 ./test/redistest ./internal/schedule
	go test -tags cluster -shuffle=on -timeout 10m ./test/e2e

# Each fuzzer for a few seconds: what a seed corpus does not have.
FUZZ_FOR ?= 5s

fuzz-short: ## every fuzzer for FUZZ_FOR=5s
	scripts/fuzz $(FUZZ_FOR)

contract: ## 10,000 random requests drawn from api/openapi.yaml; CONTRACT='-contract.seed=7' for others
	@scripts/need redis-server
	go test -count 1 -timeout 10m -v ./test/contract -contract.n 10000 $(CONTRACT)

secrecy: ## secrets of every kind through the shipped binaries, looked for in all that they log, answer, export and store
	@scripts/need redis-server
	go test -tags secrecy -count 1 -timeout 10m -v ./test/secrecy

observe: lint-rules ## alert rules and their tests, and both processes' metrics by promtool, alerts and dashboard; traces to a collector
	@scripts/need redis-server
	go test -count 1 -v ./test/observe

# The figures come last, whatever go test says before them.
crash: ## kill the API and the dispatcher at every named step; CRASH=-third for a third of them
	@scripts/need redis-server
	@figures=$$(mktemp); \
	go test -tags crash -count 1 -v -parallel 12 -timeout 15m ./test/crash -figures "$$figures" $(CRASH); rc=$$?; \
	cat "$$figures"; rm -f "$$figures"; exit $$rc

# The binary is run by itself, so that its figures are the last line.
CHAOS_FOR ?= 30m
CHAOS_RUN := cd test/chaos && ../../bin/test/chaos -test.timeout 3h -chaos.for

chaos: ## kill, freeze, cut and starve all of it by seeds, for CHAOS_FOR=30m; CHAOS=-chaos.seed=42 plays one again
	@scripts/need redis-server gcc
	CGO_ENABLED=1 go test -race -tags chaos -c -o bin/test/chaos ./test/chaos
	$(CHAOS_RUN) $(CHAOS_FOR) -chaos.race -chaos.outage 3m -chaos.readonly 30s $(CHAOS)

chaos-short: ## the same for a minute or two, without the race detector
	@scripts/need redis-server
	go test -tags chaos -c -o bin/test/chaos ./test/chaos
	$(CHAOS_RUN) 40s $(CHAOS)

# Every member of the cohort is accounted for, whoever was killed: see test/chaos/redrive_test.go.
chaos-redrive: ## a redrive of 10,000 while API, dispatchers and Redis are killed in turn
	@scripts/need redis-server
	go test -tags chaos -c -o bin/test/chaos ./test/chaos
	$(CHAOS_RUN) 0 -test.run TestRedriveSurvives -chaos.redrive 10000 -chaos.redrivewithin 15m $(CHAOS)

runbook: ## play the runbook's redrive drill and its rollout, command by command, against real processes
	@scripts/need redis-server curl
	go test -tags runbook -count 1 -timeout 10m ./test/runbook

test-interop: ## signatures verified by the npm standardwebhooks package; the example receivers, killed between duplicates
	@scripts/need redis-server node npm
	cd test/interop && npm ci --silent --no-audit --no-fund
	cd examples/receiver-node && npm ci --silent --no-audit --no-fund
	cd examples/receiver-go && go vet ./... && go test ./...
	go test -tags interop -count 1 -timeout 4m ./test/interop/...

seeded: ## put each known bug into a copy of the tree and see it caught
	@scripts/need redis-server chromium patch
	scripts/seeded-bugs

screenshots: ## play a bad night for three minutes and write pictures of the pages into docs/images
	@scripts/need redis-server chromium
	FANOUT_SCREENSHOTS=$(CURDIR)/docs/images go test -count 1 -timeout 8m ./internal/console -run TestScreenshots

# What else runs meanwhile shows in every figure.
loadtest: build ## what bad endpoints cost the others; LOADTEST="--short --scenario=calm,hang"
	@scripts/need redis-server
	bin/fanout loadtest $(LOADTEST)

# The last line is figures. A quick look: make bench BENCH='-only ceiling,fanout -short'
bench: ## the whole service beside a bare client and asynq, in rounds; BENCH=-short for one
	@scripts/need redis-server
	cd bench && CGO_ENABLED=0 go run . $(BENCH)

bench-scale: ## lease, settle and sample over 100,000 subscribers and up to a million deliveries; SCALE='-pending 3000000'
	@scripts/need redis-server
	cd bench && CGO_ENABLED=0 go run . scale $(SCALE)

bench-cluster: ## one Redis beside three primaries: balance, and what the spreading costs; CLUSTER='-layouts 0x1,3x12'
	@scripts/need redis-server
	cd bench && CGO_ENABLED=0 go run . cluster $(CLUSTER)

oncall-scale: ## what a look at a million deliveries for 10,000 subscribers costs Redis, and a scrape
	@scripts/need redis-server
	go test -count 1 -v -timeout 10m -run TestCostOfASample ./internal/oncall -oncall.pending 1000000 -oncall.subscribers 10000

oncall-drill: build ## stage an outage, full slots, a wave of retries and a burst; triage must name each within 30 s
	@scripts/need redis-server
	go test -tags drill -count 1 -v -timeout 5m ./test/drill

soak: ## ten minutes of steady load; fails if goroutines, connections or memory grow; SOAK='-for 1h'
	@scripts/need redis-server
	cd bench && CGO_ENABLED=0 go run . soak $(SOAK)

capacity: ## write the tables of docs/capacity.md anew from what bench-cluster, bench-scale, soak and bench left
	cd bench && CGO_ENABLED=0 go run . figures

bench-micro: ## benchmarks of the hot pieces
	@scripts/need redis-server
	go test -run '^$$' -bench . -benchmem ./internal/...

# --- keep it clean ---

lint: lint-go check-generated lint-rules ## all static checks: code, generated code, alert rules

lint-go: $(TOOLS)/golangci-lint.$(GOLANGCI_VERSION)
	go vet ./...
	cd bench && go vet ./...
	$(TOOLS)/golangci-lint run ./...

lint-rules:
	@scripts/need promtool
	promtool check config --lint-fatal --syntax-only $(RULES)/prometheus.yml
	promtool check rules --lint-fatal $(RULES)/rules.yml
	promtool test rules $(RULES)/rules_test.yml

vuln: ## known vulnerabilities in what we use (needs the network)
	go run golang.org/x/vuln/cmd/govulncheck@v$(GOVULNCHECK_VERSION) ./...

fmt: $(TOOLS)/golangci-lint.$(GOLANGCI_VERSION) ## format the Go code
	$(TOOLS)/golangci-lint fmt ./...

generate: ## server types and routes from api/openapi.yaml
	cd api && go tool oapi-codegen -config oapi-codegen.yaml openapi.yaml

check-generated: ## fail if the generated code is not what the contract gives
	@before=$$(mktemp) && trap 'rm -f "$$before"' EXIT && cp $(GENERATED) "$$before" && \
	$(MAKE) --no-print-directory generate && \
	{ cmp -s $(GENERATED) "$$before" || { echo "$(GENERATED) was stale: it is generated anew, commit it" >&2; exit 1; }; }

tools: $(TOOLS)/golangci-lint.$(GOLANGCI_VERSION) ## the pinned linter in .tools/

# The stamp carries the version, so that a new one is fetched when it changes.
$(TOOLS)/golangci-lint.$(GOLANGCI_VERSION):
	scripts/golangci-lint $(GOLANGCI_VERSION) $(TOOLS)
	@touch $@

clean: ## remove what was built, and the demo's data
	rm -rf bin data .tools
