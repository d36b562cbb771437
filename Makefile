# Two commands are enough: `make demo` shows rockery, `make test` proves it. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help applications attack demo quick test programs bench fuzz nightly sanitize install dist playground site packages check doc hooks

PREFIX ?= /usr/local
# Where programs of other distributions are tried each night. Those without a mirror or a keyring are left out,
# with the reason.
DISTRIBUTIONS ?= debian-11 debian-12 debian-testing ubuntu-22.04 ubuntu-24.04
CARGO ?= cargo
# rustup puts cargo here, where a shell that is already open does not look yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# What is compiled for users. The set of packages is the same for `make demo`, `make install` and `make bench`:
# cargo then chooses the same features of dependencies, and each compiles only what the others have not.
BUILD = $(CARGO) build --release --workspace --lib --bin rockery --exclude rockery-tidy --exclude rockery-torture \
	--exclude rockery-python
# Programs that BUILD has built do not build rockery again.
BUILT_PROGRAM = ROCKERY_TEST_IS_BUILT=1 scripts/as-root.sh $${CARGO_TARGET_DIR:-target}/release

demo: ## two hosts, perftest between them over rockery, iperf3 beside: one table
	@scripts/packages.sh demo
	$(BUILD) --bin demo
	@$(BUILT_PROGRAM)/demo

packages: ## installs the packages that the rest needs
	@scripts/packages.sh

# Crates whose tests need nothing but Rust. Those of `wire` that run Wireshark's dissector are left out.
QUICK := wire rnic fabric os units vendors fabric-file sim doctor buffer report playground smb tidy torture

# Crates with property tests.
PROPERTIES := wire rnic fabric infiniband fabric-file sim doctor faults trace nvme server

quick: ## what needs neither root nor network, packages or guests: under two minutes after a build
	$(CARGO) test --no-fail-fast $(QUICK:%=-p rockery-%) --lib --bins --tests -- --skip wireshark

test: packages ## all tests, real programs and the Linux kernel as the other side included
	CARGO="$(CARGO)" scripts/as-root.sh scripts/test.py

programs: packages ## only the tests with real programs
	CARGO="$(CARGO)" scripts/as-root.sh scripts/test.py -p rockery-programs

applications: packages ## applications that people use over RDMA, installed and run: what they transfer is compared
	$(CARGO) build --release --workspace --bins --lib --exclude rockery-tidy --exclude rockery-programs \
		--exclude rockery-torture --exclude rockery-bench
	scripts/as-root.sh python3 -B testing/applications

attack: packages ## attacks on programs that rockery runs, each with what its victim may lose: a table
	scripts/as-root.sh $(CARGO) run --quiet -p rockery-programs --bin attack -- --markdown

check: ## form, lints, and that the sans-IO crates need no operating system
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/no-std.sh

bench: packages ## rockery beside the limits of what it stands on; writes docs/performance.md
	$(BUILD) --bin rockery-bench --bin limits-bench --bin world-bench
	$(BUILT_PROGRAM)/limits-bench
	for threads in 1 2; do $(BUILT_PROGRAM)/world-bench "" $$threads || exit 1; done

fuzz: packages ## each fuzzer for FUZZ_SECONDS (10)
	cd testing/fuzz && $(CARGO) test

sanitize: ## shared-memory channels under Miri, ThreadSanitizer and AddressSanitizer; installs a nightly toolchain where there is none
	scripts/sanitize.sh

nightly: packages sanitize ## what takes hours: sanitizers, kills, crashes, ten thousand processes, a soak
	CARGO="$(CARGO)" scripts/as-root.sh scripts/test.py --strict
	PROPTEST_CASES=10000 $(CARGO) test --no-fail-fast $(PROPERTIES:%=-p rockery-%) --lib --tests -- --skip wireshark
	$(CARGO) build --release --workspace
	ROCKERY_TEST_KILLS=10000 $(CARGO) test --release -p rockery-host --test it kills
	ROCKERY_TEST_DEREGISTRATIONS=100000 $(CARGO) test --release -p rockery-host --test it deregistration
	ROCKERY_TEST_SCRIBBLERS=1000 $(CARGO) test --release -p rockery-host --test it scribbles
	ROCKERY_TEST_PROCESSES=10000 scripts/as-root.sh $(CARGO) test -p rockery-programs --test device same_host::
	ROCKERY_TEST_SIZES=all scripts/as-root.sh $(CARGO) test -p rockery-programs --test device -- perftest::every_program_and perftest::options_go_with
	ROCKERY_TEST_PINGS=100000 scripts/as-root.sh $(CARGO) test -p rockery-programs --test connections -- places::rping_ten_thousand places::cmtime_connects
	ROCKERY_TEST_CONNECTING=600 scripts/as-root.sh $(CARGO) test -p rockery-programs --test connections life::ten_thousand
	ROCKERY_TEST_CRASHES=1000 $(CARGO) test --release -p rockery-programs --test storage crash::
	ROCKERY_TEST_FAULTS=20 scripts/as-root.sh $(CARGO) test -p rockery-programs --test storage faults::
	ROCKERY_TEST_NAMESPACES=1000 scripts/as-root.sh $(CARGO) test -p rockery-programs --test storage blktests::targets
	ROCKERY_TEST_KILLS=200 scripts/as-root.sh $(CARGO) test -p rockery-programs --test lab robust::nothing_is_left
	ROCKERY_TEST_SMBTORTURE=all scripts/as-root.sh $(CARGO) test -p rockery-programs --test smb clients::samba_answers_smbtorture
	ROCKERY_TEST_SMB_IDLE=130 scripts/as-root.sh $(CARGO) test -p rockery-programs --test smb faults::a_silent
	for name in $(DISTRIBUTIONS); do \
		scripts/as-root.sh scripts/distribution.sh $$name target/distributions/$$name || continue; \
		ROCKERY_TEST_DISTRIBUTIONS=$$name \
			scripts/as-root.sh $(CARGO) test -p rockery-programs --test packaging distributions:: || exit 1; \
	done
	DIST_PROFILE=release ROCKERY_TEST_DISTRIBUTIONS="debian-11 debian-12 debian-13" \
		scripts/as-root.sh $(CARGO) test -p rockery-programs --test packaging -- dist:: arm::
	scripts/other-processors.sh
	for name in debian-12-arm64 debian-13-arm64; do \
		ROCKERY_TEST_ARM=$$name ROCKERY_TEST_ARM_CASES=test_ DIST_PROFILE=release \
			scripts/as-root.sh $(CARGO) test -p rockery-programs --test device arm:: || exit 1; \
	done
	ROCKERY_TEST_ARM_ALL=1 scripts/as-root.sh $(CARGO) test -p rockery-programs --test device emulated::
	DIST_PROFILE=release scripts/as-root.sh $(CARGO) run --quiet --release -p rockery-programs --bin emulated -- 100000 10000
	scripts/as-root.sh python3 -B testing/applications
	cd testing/fuzz && FUZZ_SECONDS=$${FUZZ_SECONDS:-300} $(CARGO) test --release
	$(CARGO) run --quiet --release -p rockery-programs --bin soak -- 3600
	scripts/as-root.sh scripts/container.sh

doc: ## the documentation of all crates, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

hooks: ## git looks at form, house rules and titles before each commit
	git config core.hooksPath scripts/hooks

# OpenSSL within the binary, for machines that have another release of it, or none.
ifdef STATIC_OPENSSL
export OPENSSL_STATIC := 1
export OPENSSL_LIB_DIR := $(shell pkg-config --variable=libdir openssl)
export OPENSSL_INCLUDE_DIR := $(shell pkg-config --variable=includedir openssl)
endif

# BUILT names a folder with what was built before.
install: ## rockery and its libraries under PREFIX (/usr/local), below DESTDIR if that is set
ifndef BUILT
	@command -v $(firstword $(CARGO)) >/dev/null || { echo "make install: no program $(firstword $(CARGO)): \
	scripts/packages.sh build installs Rust and what else a build needs" >&2; exit 127; }
	$(BUILD) --bin rockery-bench --bin rockery-device-plugin
endif
	DESTDIR="$(DESTDIR)" scripts/install.sh "$(DESTDIR)$(PREFIX)" $(BUILT)

# ARCH=aarch64: packages for 64-bit ARM; ARCH="x86_64 aarch64": for both, in one folder.
dist: ## packages in dist/ for glibc 2.28 and later: tarball, .deb, .rpm, wheel, checksums, a bill of materials
	@ARCH="$(ARCH)" scripts/packages.sh dist
	ARCH="$(ARCH)" scripts/dist.sh

playground: ## a page in dist/playground that runs fabric files in a browser, for any file server
	@scripts/packages.sh build
	scripts/playground.sh

site: ## the documentation as a site in dist/site, with search and the playground, for any file server
	@scripts/packages.sh build
	scripts/site.py
