# Two commands are enough: `make demo` shows rockery, `make test` proves it. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help demo test programs bench fuzz nightly sanitize install packages check

PREFIX ?= /usr/local
CARGO ?= cargo
# rustup puts cargo here, where a shell that is already open does not look yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: packages ## two hosts, perftest between them over rockery, iperf3 beside: one table
	scripts/as-root.sh $(CARGO) run --quiet --release -p rockery-programs --bin demo

packages: ## installs the packages that the rest needs
	@scripts/packages.sh

test: packages ## all tests, real programs and the Linux kernel as the other side included
	$(CARGO) build --workspace
	scripts/as-root.sh $(CARGO) test --workspace

programs: packages ## only the tests with real programs
	scripts/as-root.sh $(CARGO) test -p rockery-programs

check: ## form, lints, and that the sans-IO crates need no operating system
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/no-std.sh

bench: packages ## rockery beside the limits of what it stands on; writes docs/performance.md
	scripts/as-root.sh $(CARGO) run --quiet --release -p rockery-programs --bin bench
	for threads in 1 2; do $(CARGO) run --quiet --release -p rockery-sim --bin world-bench -- "" $$threads || exit 1; done

fuzz: packages ## each fuzzer for FUZZ_SECONDS (10)
	cd fuzz && $(CARGO) test --release

sanitize: ## lanes under Miri, ThreadSanitizer and AddressSanitizer; installs a nightly toolchain where there is none
	scripts/sanitize.sh

nightly: packages sanitize ## what takes hours: sanitizers, kills, crashes, ten thousand processes, a soak
	$(CARGO) build --release --workspace
	ROCKERY_TEST_KILLS=3000 $(CARGO) test --release -p rockery-host --test it kills
	ROCKERY_TEST_SCRIBBLERS=1000 $(CARGO) test --release -p rockery-host --test it scribbles
	ROCKERY_TEST_VISITORS=10000 scripts/as-root.sh $(CARGO) test -p rockery-programs --test same_host
	ROCKERY_TEST_SIZES=all scripts/as-root.sh $(CARGO) test -p rockery-programs --test perftest every_program_and
	ROCKERY_TEST_CONNECTING=600 scripts/as-root.sh $(CARGO) test -p rockery-programs --test connection_life thousand
	ROCKERY_TEST_CRASHES=1000 $(CARGO) test --release -p rockery-programs --test nvme_crash
	ROCKERY_TEST_FAULTS=20 scripts/as-root.sh $(CARGO) test -p rockery-programs --test nvme_faults
	ROCKERY_TEST_NAMESPACES=1000 scripts/as-root.sh $(CARGO) test -p rockery-programs --test blktests targets
	$(CARGO) run --quiet --release -p rockery-programs --bin soak -- 3600
	scripts/as-root.sh scripts/container.sh

install: ## rockery and its libraries under PREFIX (/usr/local), below DESTDIR if that is set
	$(CARGO) build --release --workspace --bins --lib --exclude rockery-tidy --exclude rockery-programs
	scripts/install.sh "$(DESTDIR)$(PREFIX)"
