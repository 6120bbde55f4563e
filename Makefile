# Holdfast. The two commands that a new clone needs: make drill, make test.
# Everything that they need is built or fetched by them.

GO      ?= go
BIN     := bin/holdfast
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODULES := . internal/tools
SHELL   := /bin/bash -o pipefail
FUZZTIME ?= 3s
SIMWORLDS ?= 500
CHAOSTIME ?= 3m

.PHONY: help build drill lab test race check fmt generate bench bench-gap bench-scale bench-programs chaos fuzz soak sim-planted conformance shots clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## the one binary, bin/holdfast
	$(GO) build -trimpath -ldflags '-X main.version=$(VERSION)' -o $(BIN) ./cmd/holdfast

drill: build ## the disaster, staged on real processes: the main job
	$(BIN) drill

lab: build ## the same disaster by hand, in a browser: prints the address
	$(BIN) lab

test: ## all tests of all modules, with the race detector, and each fuzz target briefly
	@internal/tools/require 'make test' gcc=gcc git=git curl=curl openssl=openssl chromium=chromium node=nodejs npm=npm initdb=postgresql strace=strace
	internal/tools/web/install
	@echo "== the page's scripts"
	@node --test $$(find lab/page_test -name '*.test.js')
	@for m in $(MODULES); do echo "== $$m with the race detector"; (cd $$m && $(GO) build -race ./... && $(GO) test -race -p 1 -timeout 20m ./...) || exit 1; done
	@echo "== the explorer, at full depth"
	@$(GO) test -timeout 20m -v ./sim/... | grep -v '^=== '
	@echo "== the simulator: the same $(SIMWORLDS) worlds each time"
	@$(GO) run ./cmd/holdfast sim --seeds $(SIMWORLDS)
	@echo "== the simulator's checkers, by some bugs that are planted"
	@$(GO) test -tags planted -run 'Planted' ./sim ./cmd/holdfast
	@internal/tools/fuzz $(FUZZTIME)
	@echo "make test: all passed"

race: test ## the same as test, which always runs with the race detector

check: ## format, vet, staticcheck, the page's types, style, generated code, README
	@internal/tools/require 'make check' gcc=gcc git=git protoc=protobuf-compiler node=nodejs npm=npm
	@bad=$$(git ls-files '*.go' | xargs gofmt -l); [ -z "$$bad" ] || { echo "run make fmt; not formatted: $$bad"; exit 1; }
	@for m in $(MODULES); do (cd $$m && $(GO) vet ./...) || exit 1; done
	$(GO) vet -tags planted ./...
	cd internal/tools && $(GO) build -o ../../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	internal/tools/web/install
	internal/tools/web/node_modules/.bin/tsc -p internal/tools/web
	node internal/tools/web/sizes.js
	$(GO) test ./internal/tidy
	internal/tools/generate --check
	$(GO) mod tidy -diff
	$(GO) mod verify

fmt: ## format all Go files
	git ls-files '*.go' | xargs gofmt -w

generate: ## write the code that protoc makes
	@internal/tools/require 'make generate' protoc=protobuf-compiler
	internal/tools/generate

bench: bench-programs ## rates, and the longest gap at a leader's kill -9, beside etcd's; about 8 minutes
	bin/bench

bench-scale: ## 100,000 sessions with 1,000,000 locks in three nodes: memory, snapshots, restarts; some minutes
	$(GO) run ./bench/scale

bench-gap: bench-programs ## only the gap: 20 times kill -9 of the leader, each of Holdfast and etcd
	bin/bench -only gap

bench-programs: build
	$(GO) build -o bin/bench ./bench
	$(GO) build -C internal/tools -o ../../bin/etcdlock ./etcdlock
	$(GO) build -C internal/tools -o ../../bin/etcd go.etcd.io/etcd/server/v3

chaos: build ## faults on three and five real servers and their network for CHAOSTIME (3m); root has all faults
	@internal/tools/require 'make chaos' ip=iproute2 nft=nftables initdb=postgresql
	$(GO) build -o bin/chaos ./chaos
	@echo "== are the checkers blind? the gates are off, clients are stopped: damage must be seen"
	bin/chaos -no-gate -servers 3 -for 30s
	@echo "== the gates are on: nothing may be seen"
	bin/chaos -for $(CHAOSTIME)

sim-planted: ## every rule of docs/PROTOCOL.md taken out of the simulator once: a checker must object; some minutes
	@HOLDFAST_PLANTED=all $(GO) test -tags planted -timeout 0 -count 1 -run '^TestEachPlantedBugIsCaught$$' ./sim -v | grep -v '^=== '

fuzz: ## every fuzz target for a minute
	internal/tools/fuzz 1m

soak: build ## the long forms: 200 kills of the server, 10,000 cuts of its log, full sizes of the casebook; then new worlds until stopped, or for SIMMINUTES
	HOLDFAST_SOAK=1 $(GO) test -race -timeout 120m ./...
	$(BIN) sim $(if $(SIMMINUTES),--minutes $(SIMMINUTES))

conformance: ## the engines' suite: make conformance ENGINE=memlock
	$(GO) test -race -v ./engine/$(ENGINE)/...

shots: build ## pictures of the lab: each step, light and dark, wide and narrow
	@internal/tools/require 'make shots' chromium=chromium
	$(GO) run ./lab/internal/shots -holdfast $(BIN) -out docs/pictures/lab

clean: ## remove what was built
	rm -rf bin
