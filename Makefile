# make help lists the targets. Nothing but Go is needed for build and test.

GO ?= go
PREFIX ?= /usr/local
FUZZTIME ?= 20s
NIGHTLY_SEEDS ?= 100

.PHONY: help build install release image test stories race lint deploy fuzz bench requirements reference nightly ci

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

# The flags of go run, so that both share the build cache: -trimpath or another CGO_ENABLED
# would compile every package again. A release is static, and has them.
build: ## the program, bin/roster
	$(GO) build -ldflags '-s -w' -o bin/roster ./cmd/roster

install: build ## the program in PREFIX/bin (PREFIX is /usr/local)
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 0755 bin/roster "$(DESTDIR)$(PREFIX)/bin/roster"

release: ## a signed release in ./dist, with KEY=FILE, a private key of Ed25519 in PEM
	$(GO) run ./deploy/release -key "$(KEY)" -out dist

image: ## the image roster:local, with docker, podman or buildah
	GO=$(GO) deploy/image

test: ## go test ./...: all tests but the stories that start processes; some six minutes of one core
	$(GO) test -timeout 30m ./...

stories: ## all tests, with the stories of real processes and whole meshes in full; more than 20 minutes of one core
	STORIES=1 $(GO) test -timeout 60m ./...

race: ## the short set of tests under the race detector
	$(GO) test -race -short -timeout 30m ./...

lint: ## go vet, gofmt, staticcheck and golangci-lint; the first time builds them, two minutes
	GO=$(GO) .ci/lint

deploy: ## check the files of deploy/ by the tools that read them; installs these by apt-get if it may
	GO=$(GO) .ci/deploy

fuzz: ## every fuzz target for FUZZTIME (20s)
	.ci/fuzz $(FUZZTIME)

bench: ## every benchmark
	$(GO) test -run '^$$' -bench . -benchmem ./...

requirements: ## compare the tests with docs/spec/requirements.tsv; writes docs/spec/requirements.md
	.ci/requirements

reference: ## docs/reference anew, from the code
	$(GO) test ./cmd/roster ./node -run TestReference -update

# -count: rapid ends each run of that property after 24 hours of its own virtual time,
# some 1,450 checks.
nightly: ## the stories in the sizes that the promises name, over NIGHTLY_SEEDS (100) seeds; many hours on two cores; each seed of a mesh cut for a week takes two minutes of one
	STORY_LONG=1 $(GO) test -timeout 1h -v -run 'TestMutants|TestKilledAtAnySync' ./trust ./federation
	STORY_LONG=1 $(GO) test -timeout 1h -v -run TestTwoBranches ./consensus
	$(GO) test -timeout 1h -v -run 'TestRules$$' ./federation -seeds 1000
	$(GO) test -timeout 1h -v -count 7 -run TestHonestyIsNeverAccused ./federation -rapid.checks 10000
	MUTANTS=1 $(GO) test -timeout 1h -v ./scenarios/mutants
	STORY_LONG=1 $(GO) test -timeout 2h -v ./scenarios/attacks
	STORY_LONG=1 .ci/deploy
	STORY_LONG=1 STORY_SEEDS=$(NIGHTLY_SEEDS) $(GO) test -timeout 72h -v ./scenarios

ci: ## what .ci/run does on a clean machine
	.ci/run
