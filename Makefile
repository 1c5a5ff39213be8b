# Two commands do all set-up: `make demo` runs the main job, `make test` passes the tests. Both install what is missing.
# `make check` is for between two edits.
CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),./target)
TLSDYNO = $(TARGET)/release/tlsdyno
# The core and its satellites; each is a package with a program of its name.
PROGRAMS = tlsdyno tlsdyno-cryptoserver tlsdyno-dispatch tlsdyno-lab tlsdyno-probe tlsdyno-sizes tlsdyno-top
PACKAGES = $(addprefix -p ,$(PROGRAMS))

.PHONY: demo test check build install packages release bench results papers clean
.PHONY: test-long test-openssl test-distributions test-debian13 test-packages test-gate test-release test-probe
.PHONY: test-machines test-bounds

demo: ## run the main job on the built-in server and write report.html
	scripts/install-packages demo
	$(CARGO) build --profile demo -p tlsdyno --no-default-features
	$(TARGET)/demo/tlsdyno ablate --quick --report report.html

# Most tests wait for servers: more of them run at once than there are processors. There are no tests in documentation.
test: ## everything that continuous integration runs; other programs on the machine make no test fail
	scripts/install-packages test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --exclude xtask --no-default-features --lib --bins -- -D warnings
	$(CARGO) build --quiet --workspace --bin xtask
	$(TARGET)/debug/xtask tidy
	RUST_TEST_THREADS=$$((2 + $$(nproc))) $(CARGO) test --workspace --lib --bins --tests

check: ## what is quick of it: format, lint, unit tests, tidiness; a minute, without servers
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --quiet --workspace --lib --bins
	$(CARGO) build --quiet --workspace --bin xtask
	$(TARGET)/debug/xtask tidy

test-long: ## every server, sanitizers, valgrind, statistics, examples, commands of documents; an hour, wants quiet
	scripts/install-packages test
	$(CARGO) test -p tlsdyno-advise --lib -- --ignored long::
	$(CARGO) build $(PACKAGES)
	$(CARGO) test -p tlsdyno --test logic --test native --test traffic -- --ignored long:: sanitized::
	$(CARGO) test -p tlsdyno --test servers -- --ignored --test-threads 1 long::
	$(CARGO) build --profile demo $(PACKAGES)
	scripts/test-examples $(TARGET)/demo/tlsdyno
	scripts/run-documents $(TARGET)/demo/tlsdyno

build: ## the release binaries
	scripts/install-packages build
	$(CARGO) build --release $(PACKAGES)

install: ## for good, in cargo's bin directory
	scripts/install-packages build
	set -e; for program in $(PROGRAMS); do $(CARGO) install --path crates/$${program#tlsdyno-}; done

# No path of this machine is in what is made, so that two clean clones make the same bytes (packaging/README.md).
CARGO_SOURCES = $(or $(CARGO_HOME),$(HOME)/.cargo)
packages release: export RUSTFLAGS = --remap-path-prefix=$(CARGO_SOURCES)=/cargo \
	--remap-path-prefix=$(abspath $(TARGET))=/target --remap-path-prefix=$(CURDIR)=/tlsdyno
packages release: export CFLAGS = -ffile-prefix-map=$(CARGO_SOURCES)=/cargo \
	-ffile-prefix-map=$(abspath $(TARGET))=/target -ffile-prefix-map=$(CURDIR)=/tlsdyno

packages: ## .deb, .rpm and tarball into target/packages, for glibc 2.34 and later; on Debian 12
	scripts/install-packages packages
	rm -rf $(TARGET)/release/build/tlsdyno-native-*
	set -e; for program in $(PROGRAMS); do \
		$(CARGO) rustc --release --locked -p $$program --bin $$program -- -Clto=fat -Clink-arg=-Wl,--no-eh-frame-hdr \
			-Clink-arg=-Wl,--icf=safe -Clink-arg=-Wl,-T,packaging/no-unwinding.ld; done
	packaging/build $(TARGET)/packages $(TARGET)/release "$(PROGRAMS)" $(TARGET)/release/build/tlsdyno-native-*/out

release: packages ## packages, image, list of parts, SHA256SUMS; KEY=FILE signs them (packaging/README.md)
	packaging/image $(TARGET)/packages
	packaging/sbom $(TARGET)/packages $(PROGRAMS)
	packaging/seal $(TARGET)/packages $(KEY)

bench: ## what the client and the instrument cost (docs/BENCHMARKS.md); a quarter of an hour, wants a quiet machine
	scripts/install-packages bench
	$(CARGO) build --release $(PACKAGES)
	$(TLSDYNO) run experiments/modern/provider-overhead-full-handshake.toml --no-report
	$(TLSDYNO) run experiments/modern/provider-overhead-keep-alive.toml --no-report
	$(TLSDYNO) run experiments/modern/nginx-rsa-full-handshake.toml --no-report
	$(CARGO) run --release -p xtask -- bench-client
	$(CARGO) run --release -p xtask -- bench-dispatch

results: ## the campaign behind docs/RESULTS.md, an hour on a quiet machine, and its tables; goes on where it stopped
	scripts/install-packages test
	$(CARGO) build --release $(PACKAGES)
	$(CARGO) run --release -p xtask -- campaign today
	$(CARGO) run --release -p xtask -- results

papers: ## a report for each figure and table of the papers, into target/papers; under 5 hours, goes on where it stopped
	scripts/install-packages test
	$(CARGO) build --release $(PACKAGES)
	scripts/papers

test-openssl: ## provider, doubler and shim on OpenSSL 3.5 and 4.0, built from source; long
	scripts/install-packages openssl-series
	$(CARGO) run -p xtask -- openssl-series

test-distributions: ## every stage, server and classic experiment on Debian 12 and 13, in private roots; as root, long
	scripts/install-packages distributions
	$(CARGO) run -p xtask -- distributions

test-debian13: ## `make test` on Debian 13, in a private root; as root, half an hour
	scripts/install-packages distributions
	$(CARGO) run -p xtask -- distributions --make-test trixie

test-packages: ## packages installed, run and removed on Debian and Ubuntu, two of each, and the image; as root
	scripts/install-packages distributions
	packaging/try $(TARGET)/packages

test-gate: ## the tarball's gate on two builds of nginx, in a private root: same, slower, undecided, broken; as root
	scripts/install-packages distributions
	packaging/try $(TARGET)/packages gate

test-release: ## the release from two clean clones, equal to the byte, and its signature; most of an hour
	scripts/install-packages packages
	packaging/twice $(TARGET)/twice

test-probe: ## the probe for months and minutes: sizes, kills, a thousand sites, a packet capture; as root, quiet
	scripts/install-packages test
	$(CARGO) build --release $(PACKAGES)
	$(CARGO) test --release -p tlsdyno --test traffic probe:: -- --ignored --nocapture --test-threads 1

test-machines: ## workers by ssh and Slurm, kills and freezes twenty times each, start skew; as root, a few minutes
	scripts/install-packages machines
	$(CARGO) build $(PACKAGES)
	$(CARGO) test -p tlsdyno --test traffic machines:: -- --ignored --nocapture --test-threads 1

test-bounds: ## --time as a bound beside two busy programs, which disturb every other test; half a minute
	scripts/install-packages test
	$(CARGO) test -p tlsdyno --test servers bounds:: -- --ignored --nocapture

clean:
	$(CARGO) clean
