# `make` prints the targets. Every target that needs something installed sets it up first.

CARGO ?= cargo
SETUP := tests/sandbox/setup
# Of each fuzz target.
FUZZ_SECONDS ?= 600
# The path of a tool that the set-up has put into the cache.
tool = $$($(SETUP) --locate | sed -n 's/^$(1)=//p')

# What `proto/` must stay compatible with, whatever commits a change has.
PROTO_BASELINE := proto/baseline.binpb

# What `make upgrade` begins with, such as v0.1.0.
FROM ?=
# Where `make push` copies images to, such as registry.example/sip.
REGISTRY ?=
# Files with CA certificates (PEM) that programs in images trust besides those of this machine, such as a proxy's.
EXTRA_CA_CERTIFICATES ?=
# What is downloaded for images comes through the same proxy.
ifneq ($(strip $(EXTRA_CA_CERTIFICATES)),)
BUILD_CA_CERTIFICATES := $(CURDIR)/target/build-ca-certificates.pem
$(shell mkdir -p target && cat /etc/ssl/certs/ca-certificates.crt $(EXTRA_CA_CERTIFICATES) >$(BUILD_CA_CERTIFICATES))
export CARGO_HTTP_CAINFO := $(BUILD_CA_CERTIFICATES)
export SSL_CERT_FILE := $(BUILD_CA_CERTIFICATES)
endif
# What images say of themselves.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
REVISION = $(shell git describe --always --abbrev=40 --exclude='*' --dirty)
# Such as --dest-tls-verify=false for a registry on loopback.
SKOPEO_FLAGS ?=
IMAGES := target/images
# Of what a node pulls, in MB.
LARGEST_IMAGE := 40
AGENTS := sip-cluster-agent sip-dex-agent sip-load-balancer-agent sip-haproxy-sidecar sip-jump-host-agent sip-jump-host-sidecar
# Images without programs of ours: what they hold is the distribution's.
DISTRIBUTION_IMAGES := sip-jump-host
# Packages whose programs run in images of tenants, of any age: they bring their libraries along.
STATIC := sip-jump-host-sidecar sip-host

# The oldest minor of Kubernetes that docs/install.md supports, a module in tests/sandbox/tools.
OLDEST_KUBERNETES := 1.31

# Tests of a site whose node runs pods.
REAL_NODE := install:: real_node:: real_tenant::

# Clippy's driver in the place of the compiler, for the crates of the workspace: it lints what it compiles, so that no dependency is checked
# by one command and compiled by another.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings

# Proofs print what they counted.
PROOF := $(CARGO) test --quiet

# Runs a command as a named step, and prints how long it took.
define step
@started=$$(date +%s); printf '\n== %s\n' '$(1)'; \
$(2) </dev/null; status=$$?; \
printf '== %s: %s s\n' '$(1)' "$$(($$(date +%s) - started))"; exit $$status
endef

.DEFAULT_GOAL := help
# Steps use the same cargo target directory and the same two cores.
.NOTPARALLEL:
.PHONY: help abuse advisories plan demo upgrade test test-oldest check bench mutants soak soak-site fuzz lint generate images proto-baseline push release clean setup setup-bench setup-checks setup-fuzz setup-images setup-release fmt clippy proto-lint dependencies unit all-tests

help: ## lists the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "make %-14s %s\n", $$1, $$2 }'

# Not in the directory of all other builds: these programs have fewer features. Exit code 2: a cluster is refused, or a role loses its majority.
PLAN := $(CARGO) run --locked --quiet --target-dir target/plan --package sipctl --no-default-features --
plan: ## plans the sample clusters on the sample hosts, from files, and prints what a failed rack would cost; needs only Rust
	$(PLAN) plan -f tests/sandbox/samples || test $$? = 2
	$(PLAN) lose vino.airshipit.org/rack=r001 --planned -f tests/sandbox/samples || test $$? = 2

demo: setup ## starts a region with one site, places three clusters and prints the result
	@$(CARGO) build --workspace --bins
	@$(CARGO) run --quiet --package sip-sandbox -- demo

test: setup-checks fmt lint all-tests ## every check that CI runs: format, lints, all tests

check: setup-checks fmt clippy unit ## the fast part of `make test`: format, clippy, unit tests

# The kubelet of this minor restarts containers later than the tests of real_node:: and real_tenant:: wait: its longest backoff is not an option.
test-oldest: export SIP_KUBERNETES := $(OLDEST_KUBERNETES)
test-oldest: ## the tests of sites and of the installation, with the oldest Kubernetes that docs/install.md supports
	$(call step,set-up with Kubernetes $(OLDEST_KUBERNETES),$(SETUP) --checks)
	$(call step,build,$(CARGO) build --quiet --workspace --bins)
	$(call step,tests of sites,$(CARGO) test --workspace --test site -- --test-threads 5 $(REAL_NODE:%=--skip %))
	$(call step,tests of the installation,$(CARGO) test --package sip-site-tests --test site install:: -- --test-threads 3)

bench: setup-bench ## measures the decision (goals, growth, instructions), the scheduler, load balancers, whole sites with 1,000 and 10,000 hosts, and clusters beside a hostile tenant
	GUNGRAUN_RUNNER=$(call tool,gungraun-runner) $(CARGO) bench --package sip-placement --bench '*'
	$(CARGO) bench --profile dist --package sip-scheduler --bench '*'
	$(CARGO) bench --package sip-render --bench '*'
	$(CARGO) build --release --workspace --bins
	$(CARGO) bench --package sip-contract-tests --bench failover
	$(CARGO) run --release --bin sip-sandbox -- bench
	$(CARGO) run --release --bin sip-sandbox -- hostile

mutants: ## leaves one rule of a member's life after the other out of the decision; the random histories must find each
	$(call step,mutants,CARGO="$(CARGO)" services/placement/mutations/run)

soak-site: setup-checks ## half an hour of random changes and faults in a site; then a checker verifies every invariant
	$(call step,build,$(CARGO) build --quiet --workspace --bins)
	$(call step,random soak of a site,SOAK_SITE_SECONDS=$${SOAK_SITE_SECONDS:-1800} \
	    $(PROOF) --package sip-site-tests --test site soak -- --nocapture)

abuse: setup-checks ## two minutes of all attacks on a scheduler at once, with each kind of ledger; then a checker verifies what others were promised
	$(call step,build,$(CARGO) build --quiet --package sip-scheduler --bins)
	$(call step,all attacks at once,SOAK_ABUSE_SECONDS=$${SOAK_ABUSE_SECONDS:-120} \
	    $(PROOF) --package sip-contract-tests --test schedulers abuse -- --nocapture --test-threads 1)

soak: setup-checks ## the long-running tests of the ledger, the protocol and the agents, such as crashes at every write
	$(call step,crashes,SOAK_CRASHES=$${SOAK_CRASHES:-20} $(PROOF) --package sip-scheduler --test crashes -- --nocapture)
	$(call step,lost ledgers,SOAK_REBUILDS=$${SOAK_REBUILDS:-10000} \
	    $(PROOF) --package sip-scheduler --test protocol a_lost_ledger_loses -- --nocapture)
	$(call step,histories of the decision,SOAK=$${SOAK_HISTORIES:-667} \
	    $(PROOF) --release --package sip-placement --test history -- --nocapture)
	$(call step,build,$(CARGO) build --quiet --package sip-scheduler --bins)
	$(call step,kills,SOAK_KILLS=$${SOAK_KILLS:-500} \
	    $(PROOF) --package sip-contract-tests --test schedulers killed::file -- --nocapture)
	$(call step,kills and other faults on etcd,SOAK_FAILOVERS=$${SOAK_FAILOVERS:-100} \
	    $(PROOF) --package sip-contract-tests --test schedulers killed::on_etcd -- --nocapture)
	$(call step,model of the claim protocol,SOAK_DEPTH=$${SOAK_DEPTH:-5} SOAK_WALKS=$${SOAK_WALKS:-5000} \
	    $(PROOF) --release --package sip-contract-tests --test model -- --nocapture)
	$(call step,simulated network,SOAK_SCHEDULES=$${SOAK_SCHEDULES:-1000} \
	    $(PROOF) --package sip-contract-tests --test simulation -- --nocapture)
	$(call step,build,$(CARGO) build --quiet --workspace --bins)
	$(call step,every call of the agents,SOAK_FAULTS=1 $(PROOF) --package sip-site-tests --test site faults:: -- --nocapture)
	$(call step,claims that race with releases,SOAK_CLAIMS=$${SOAK_CLAIMS:-1000} \
	    $(PROOF) --package sip-site-tests --test site capm3::race -- --nocapture --test-threads 1)
	$(call step,fifty changes of a load balancer,SOAK_CHANGES=$${SOAK_CHANGES:-50} \
	    $(PROOF) --package sip-site-tests --test site real_node::followed -- --nocapture)
	$(call step,a host that moves between tenants,SOAK_MOVES=$${SOAK_MOVES:-40} \
	    $(PROOF) --package sip-site-tests --test site real_node::moves -- --nocapture)
	$(call step,such moves with kills at writes,SOAK_MOVE_KILLS=$${SOAK_MOVE_KILLS:-9} \
	    $(PROOF) --package sip-site-tests --test site real_node::moves -- --nocapture)
	$(call step,each kind of pod killed and no scheduler for a time,SOAK_SCHEDULER_AWAY=$${SOAK_SCHEDULER_AWAY:-600} \
	    $(PROOF) --package sip-site-tests --test site install::killed_pods -- --nocapture)
	$(call step,edits of load balancers in random order,SOAK_EDITS=$${SOAK_EDITS:-300} \
	    $(PROOF) --package sip-site-tests --test site balancers::edits -- --nocapture)
	$(call step,hostile keys and names of jump hosts,SOAK_HOSTILE=$${SOAK_HOSTILE:-100000} \
	    $(PROOF) --package sip-render --lib jump_host::tests::hostile -- --nocapture)
	$(call step,hostile names of hosts in load balancers,SOAK_HOSTILE=$${SOAK_HOSTILE:-100000} \
	    $(PROOF) --package sip-render --lib load_balancer::tests::read_back -- --nocapture)
	$(call step,hostile texts in identity providers,SOAK_HOSTILE=$${SOAK_HOSTILE:-100000} \
	    $(PROOF) --release --package sip-render --test hostile -- --nocapture)
	$(call step,the same as Go reads them,SOAK_HOSTILE=$${SOAK_HOSTILE:-100000} \
	    $(PROOF) --release --package sip-dex-agent --test real read_back -- --nocapture)
	$(call step,two sites,SOAK_TWO_SITES=$${SOAK_TWO_SITES:-200} \
	    $(PROOF) --package sip-site-tests --test site two_sites -- --nocapture)
	$(call step,attacks on two sites,SOAK_ATTACKS=$${SOAK_ATTACKS:-60} \
	    $(PROOF) --package sip-site-tests --test site attacks -- --nocapture)
	$(call step,logins while everything is changed,SOAK_LOGINS=$${SOAK_LOGINS:-50} \
	    $(PROOF) --package sip-site-tests --test site real_node::sign_in -- --nocapture)
	$(call step,decisions,SOAK=$${SOAK:-10} $(CARGO) test --quiet --package sip-placement --package sip-optimum-tests -- --nocapture)

upgrade: setup-checks ## replaces the programs of the revision FROM with the present ones, in either order, in a site with clusters in place
	@test -n "$(FROM)" || { echo 'make upgrade FROM=REVISION' >&2; exit 1; }
	@rm -rf target/upgrade/source && mkdir -p target/upgrade/source
	@git archive $(FROM) | tar --extract --directory target/upgrade/source
	$(call step,programs of $(FROM),$(CARGO) build --quiet --locked --workspace --bins \
	    --manifest-path target/upgrade/source/Cargo.toml --target-dir target/upgrade/build)
	$(call step,build,$(CARGO) build --quiet --workspace --bins)
	$(call step,upgrade,SIP_BIN_DIR=$(CURDIR)/target/upgrade/build/debug \
	    $(PROOF) --package sip-site-tests --test site upgrade:: -- --nocapture)

fuzz: setup-fuzz ## fuzzes the input of `sipctl plan`, selectors, SIPClusters, networkData and the configurations of Dex and HAProxy, FUZZ_SECONDS (600) each
	@for target in services/sipctl/plan_input services/sipctl/selectors agents/api/sip_cluster agents/api/network_data \
    agents/render/dex_config agents/render/haproxy_config; do \
	  started=$$(date +%s); crate=$${target%/*}; target=$${target##*/}; printf '\n== fuzz %s\n' "$$target"; \
	  (cd "$$crate" && mkdir -p fuzz/corpus/$$target && \
	    PATH=$$(dirname "$$(../../$(SETUP) --locate | sed -n 's/^cargo-fuzz=//p')"):$$PATH $(CARGO) +nightly fuzz run "$$target" \
	    fuzz/corpus/$$target fuzz/seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1) </dev/null || exit 1; \
	  printf '== fuzz %s: %s s, no crash\n' "$$target" "$$(($$(date +%s) - started))"; \
	done

lint: setup-checks proto-lint dependencies ## lints the proto files and the dependencies, and checks that no call has changed incompatibly

generate: ## regenerates deploy/crd, and in docs/ conditions.md, events.md and site-configuration.md, from the types
	$(CARGO) run --quiet --package sip-api --bin crds -- --write deploy/crd
	$(CARGO) run --quiet --package sip-kit --bin pages -- --write docs

images: setup-images ## writes container images of the scheduler, the agents and jump hosts to target/images, without a daemon or a registry
	$(call step,crates,$(CARGO) fetch --locked --quiet)
	$(call step,scheduler,$(CARGO) build --locked --quiet --profile dist --package sip-scheduler --package sipctl --bins)
	$(call step,agents,$(CARGO) build --locked --quiet --release $(AGENTS:%=--package %) --package sip-images --bins)
	$(call step,static programs,for package in $(STATIC); do $(CARGO) rustc --locked --quiet --release --package $$package --bins \
	    -- -C target-feature=+crt-static || exit 1; done)
	$(call step,images,export SOURCE_URL="$$(git remote get-url origin 2>/dev/null)"; target/release/sip-images --output $(IMAGES) --revision "$(REVISION)" --largest $(LARGEST_IMAGE) \
	    $(EXTRA_CA_CERTIFICATES:%=--extra-ca-certificates %) --programs target/dist sip-scheduler && \
	  target/release/sip-images --output $(IMAGES) --revision "$(REVISION)" --largest $(LARGEST_IMAGE) \
	    $(EXTRA_CA_CERTIFICATES:%=--extra-ca-certificates %) --programs target/release \
	    --programs "$$(dirname "$(call tool,kubectl)")" $(AGENTS) $(DISTRIBUTION_IMAGES))

push: ## copies the images of `make images` to REGISTRY, with skopeo
	@test -n "$(REGISTRY)" || { echo 'make push REGISTRY=registry.example/sip' >&2; exit 1; }
	@for name in sip-scheduler $(AGENTS) $(DISTRIBUTION_IMAGES); do \
	  tar --extract --to-stdout --file $(IMAGES)/$$name.tar index.json | grep --quiet "/$$name:$(VERSION)\"" || \
	    { echo "$(IMAGES)/$$name.tar is no image of version $(VERSION): run make images" >&2; exit 1; }; \
	  skopeo copy $(SKOPEO_FLAGS) "oci-archive:$(IMAGES)/$$name.tar" "docker://$(REGISTRY)/$$name:$(VERSION)" || exit 1; \
	done

release: setup-release ## writes a release of the commit that is checked out to target/distribution: images, sipctl, manifests, checksums and provenance
	$(call step,check,deploy/release/run check "$(VERSION)")
	@$(MAKE) --no-print-directory images
	$(call step,release,EXTRA_CA_CERTIFICATES="$(EXTRA_CA_CERTIFICATES)" \
	    deploy/release/run write "$(VERSION)" sip-scheduler $(AGENTS) $(DISTRIBUTION_IMAGES))

clean: ## removes the build products of cargo, but not the tools in the user's cache directory
	$(CARGO) clean

setup: ## installs the tools that a site needs: Debian packages (as root), Go tools
	$(call step,set-up,$(SETUP))

setup-bench:
	$(call step,set-up,$(SETUP) --bench)

setup-images:
	$(call step,set-up,$(SETUP) --images)

setup-release:
	$(call step,set-up,$(SETUP) --release)

setup-fuzz:
	$(call step,set-up,$(SETUP) --fuzz)

setup-checks: ## installs the tools of `make setup`, and those that `make lint` and all tests need
	$(call step,set-up,$(SETUP) --checks)

fmt:
	$(call step,format,$(CARGO) fmt --all --check)

clippy: setup-checks
	$(call step,clippy,$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings)

advisories: setup-checks ## checks the dependencies against the RustSec advisory database, which it fetches
	$(call step,cargo deny advisories,$(call tool,cargo-deny) --workspace check --hide-inclusion-graph advisories)

proto-lint: setup-checks
	$(call step,buf lint,$(call tool,buf) lint proto)
	$(call step,buf breaking,$(call tool,buf) breaking proto --against $(PROTO_BASELINE))

proto-baseline: setup-checks ## takes the present calls as what later ones must be compatible with: at a release, or for a change marked BREAKING
	$(call tool,buf) build proto --exclude-source-info --output $(PROTO_BASELINE)

dependencies: setup-checks
	$(call step,cargo deny,$(call tool,cargo-deny) --workspace check --hide-inclusion-graph bans licenses sources)
	$(call step,cargo machete,$(call tool,cargo-machete) --with-metadata)

unit: setup-checks
	$(call step,unit tests,$(CARGO) test --quiet --workspace --lib)

# Tests start the project's programs as processes, and wait for them. So many at once keep two cores busy; those of sites start API servers, and
# those with a real node more.
all-tests: setup-checks
	$(call step,build and clippy,$(LINTED) $(CARGO) build --quiet --workspace --all-targets)
	$(call step,tests,$(LINTED) $(CARGO) test --workspace --exclude sip-site-tests -- --test-threads 4)
	$(call step,tests of sites,$(LINTED) $(CARGO) test --workspace --test site -- --test-threads 5 $(REAL_NODE:%=--skip %))
	$(call step,tests of sites with a real node,$(LINTED) $(CARGO) test --workspace --test site -- --test-threads 3 $(REAL_NODE))
