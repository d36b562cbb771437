//! The packages of `make dist`, installed in clean roots of other distributions, without a compiler.
//!
//! Debian 13 unless `ROCKERY_TEST_DISTRIBUTIONS` names others, separated by spaces.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use programs::probe::Probe;
use programs::{Distribution, Machine, Namespace, Packages, perftest};
use tempfile::TempDir;

const SECONDS: u64 = 120;

/// The oldest C library that packages run on: RHEL 8's and Debian 10's.
const GLIBC: (u32, u32) = (2, 28);

/// The libraries that packages need of other packages: the C library's parts. Each processor has its own
/// loader.
const NEEDED: [&str; 4] = ["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"];

/// The programs of every package.
const PROGRAMS: [&str; 3] = ["rockery", "rockery-bench", "rockery-device-plugin"];

/// Programs that an installation has to do without.
const COMPILERS: [&str; 4] = ["cc", "gcc", "ld", "cargo"];

pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The output of a command.
pub(crate) fn said(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Calls `body` with a clean root of each distribution and a machine's network.
fn on_each(body: impl Fn(&str, Distribution, &Namespace)) {
    let packages = Packages::made();
    let names = std::env::var("ROCKERY_TEST_DISTRIBUTIONS");
    for name in names.as_deref().unwrap_or("debian-13").split_whitespace() {
        let root = Distribution::clean(name, packages.folder())
            .unwrap_or_else(|it| panic!("{name}: {it}"));
        for compiler in COMPILERS {
            assert!(
                !root.root().join("usr/bin").join(compiler).exists(),
                "{name} has {compiler}"
            );
        }
        body(name, root, &Namespace::alone().expect("a namespace"));
    }
}

/// Runs a command in the root, and returns what it prints.
fn call(machine: &dyn Machine, argv: &[&str]) -> String {
    machine
        .run(argv, SECONDS)
        .unwrap_or_else(|it| panic!("{argv:?}: {it}"))
        .expect_success()
        .output
}

fn perftest_runs(machine: &dyn Machine) {
    for line in [
        "ib_write_bw -d rk_lo -n 100",
        "ib_send_lat -d rk_lo -n 100 -c UD",
    ] {
        perftest::expect(machine, machine, line);
    }
}

/// A comparison without a network: the installed command starts the program that has the comparisons.
fn bench_runs(machine: &dyn Machine, rockery: &str) {
    let words = "bench nvme --transport local --part latency --size 16MiB --quick";
    let argv: Vec<&str> = [rockery].into_iter().chain(words.split(' ')).collect();
    let table = call(machine, &argv);
    assert!(table.contains("4 KiB random read"), "{table}");
}

#[test]
fn the_deb_installs_runs_and_goes() {
    let packages = Packages::made();
    let deb = format!("/rockery/{}", packages.named("rockery_", ".deb"));
    let default = format!("/rockery/{}", packages.named("rockery-default_", ".deb"));
    on_each(|name, root, alone| {
        let before = call(&root.on(alone), &["ldconfig", "-p"]);
        // It depends on packages of the distribution only, and no other package has one of its files.
        call(&root.on(alone), &["dpkg", "-i", &deb]);
        let told = call(&root.on(alone), &["rockery", "--version"]);
        assert_eq!(told.trim(), format!("rockery {}", version()), "{name}");
        call(&root.on(alone), &["ldconfig"]);
        assert_eq!(
            call(&root.on(alone), &["ldconfig", "-p"]),
            before,
            "{name}: nothing else uses it"
        );
        bench_runs(&root.on(alone), "rockery");
        let root = root.with_command("/usr/bin/rockery");
        perftest_runs(&root.on(alone));

        // With the second package every program uses it. The root has no scripts of libc-bin's, which run
        // ldconfig on dpkg's trigger.
        let root = root.without_command();
        call(&root.on(alone), &["dpkg", "-i", &default]);
        call(&root.on(alone), &["ldconfig"]);
        perftest_runs(&root.on(alone));
        call(&root.on(alone), &["dpkg", "-r", "rockery-default"]);
        call(&root.on(alone), &["ldconfig"]);
        assert_eq!(
            call(&root.on(alone), &["ldconfig", "-p"]),
            before,
            "{name}: removed"
        );
        call(&root.on(alone), &["dpkg", "-r", "rockery"]);
        for path in [
            "usr/bin/rockery",
            "usr/bin/rockery-bench",
            "usr/bin/rockery-device-plugin",
            "usr/lib/rockery",
            "usr/share/doc/rockery",
        ] {
            assert!(!root.root().join(path).exists(), "{name}: {path} is left");
        }
    });
}

/// Packages have an unwinder of their own, and the C library's ends threads that are cancelled, as iperf3
/// 3.18 ends its own. Builds of cargo alone have the C library's.
#[test]
fn threads_are_cancelled_in_calls_that_preloaded_libraries_pass_on() {
    let probe = Probe::compile_with("cc", "cancelled_calls", &["-pthread"]).expect("it compiles");
    let built = Packages::built();
    for library in ["sysfs", "sockets", "clock"] {
        let library = built.join(format!("libpreload_{library}.so"));
        assert!(library.exists(), "{}", library.display());
        let ran = Command::new(probe.path())
            .env("LD_PRELOAD", &library)
            // So that the clock's waits are converted: epoch, slowdown and wall.
            .env("ROCKERY_LAB_CLOCK", "1,2,1")
            .output()
            .expect("it starts");
        let told = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success() && told.ends_with("right\n"),
            "{}: {}\n{told}",
            library.display(),
            ran.status
        );
    }
}

#[test]
fn the_tarball_installs_and_runs() {
    let packages = Packages::made();
    let tarball = packages
        .folder()
        .join(packages.named("rockery-", ".tar.gz"));
    on_each(|_, root, alone| {
        // By this machine's tar: the root has no gzip.
        let opt = root.root().join("opt");
        fs::create_dir_all(&opt).expect("a folder of the root");
        said(
            Command::new("tar")
                .arg("-xf")
                .arg(&tarball)
                .arg("-C")
                .arg(opt),
        );
        let folder = format!("/opt/rockery-{}-x86_64-linux", version());
        call(
            &root.on(alone),
            &[&format!("{folder}/install.sh"), "/opt/elsewhere"],
        );
        fs::remove_dir_all(root.root().join(&folder[1..])).expect("it was unpacked there");
        bench_runs(&root.on(alone), "/opt/elsewhere/bin/rockery");
        let root = root.with_command("/opt/elsewhere/bin/rockery");
        perftest_runs(&root.on(alone));
    });
}

/// With this machine's rpm, since Debian's root has no database of rpm's.
#[test]
fn the_rpm_installs_and_runs() {
    let packages = Packages::made();
    let rpm = packages
        .folder()
        .join(packages.named(&format!("rockery-{}", version()), ".rpm"));
    let default = packages
        .folder()
        .join(packages.named("rockery-default-", ".rpm"));
    assert!(said(Command::new("rpm").arg("-K").arg(&rpm)).contains("digests OK"));
    assert!(
        said(Command::new("rpm").args(["-qp", "--requires"]).arg(&rpm)).contains("glibc >= 2.28")
    );
    let provided = said(Command::new("rpm").args(["-qp", "--provides"]).arg(&rpm));
    assert!(
        !provided.contains("libibverbs"),
        "packages that need rdma-core must not get this: {provided}"
    );
    let files = said(Command::new("rpm").args(["-qlp"]).arg(&default));
    assert_eq!(files.trim(), "/etc/ld.so.conf.d/00-rockery.conf");
    on_each(|_, root, alone| {
        let mut install = Command::new("rpm");
        install
            .arg("--root")
            .arg(root.root())
            .args(["--dbpath", "/var/lib/rpm", "--nodeps", "-i"]);
        said(install.arg(&rpm));
        bench_runs(&root.on(alone), "rockery");
        let root = root.with_command("/usr/bin/rockery");
        perftest_runs(&root.on(alone));
    });
}

/// With the pip of the tools that packages are built with, since Debian's root has none. The module is for
/// every Python 3, so the root's own runs it.
#[test]
fn the_wheel_installs_simulates_and_runs() {
    let packages = Packages::made();
    let wheel = packages.folder().join(packages.named("rockery-", ".whl"));
    let pip = Packages::tools().join("python");
    on_each(|name, root, alone| {
        let mut install = Command::new(&pip);
        install.args([
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-index",
            "--no-deps",
        ]);
        said(
            install
                .arg("--root")
                .arg(root.root())
                .args(["--prefix", "/opt/wheel"])
                .arg(&wheel),
        );
        let library = root.root().join("opt/wheel/lib");
        let entries = fs::read_dir(library).expect("the installation");
        let mut names = entries.map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        });
        let python = names
            .find(|name| name.starts_with("python3"))
            .expect("a folder of Python");
        let path = format!("PYTHONPATH=/opt/wheel/lib/{python}/site-packages");
        let code = "import rockery; print(rockery.__version__, rockery.command(), rockery.sim({'topology': \
                    {'kind': 'star', 'hosts': 3}, 'workload': [{'from': ['h1'], 'to': ['h0'], \
                    'message': '64KiB', 'messages': 4}]}).flows['bytes'])";
        let told = call(&root.on(alone), &["env", &path, "python3", "-c", code]);
        let expected = format!("{} /opt/wheel/bin/rockery [262144]", version());
        assert_eq!(told.trim(), expected, "{name}");
        bench_runs(&root.on(alone), "/opt/wheel/bin/rockery");
        perftest_runs(&root.with_command("/opt/wheel/bin/rockery").on(alone));
    });
}

/// The ELF files of the tarball and of the wheel for a processor, unpacked.
pub(crate) fn unpacked(packages: &Packages, processor: &str) -> (TempDir, Vec<PathBuf>) {
    let folder = TempDir::new().expect("a temporary folder");
    let tarball = packages
        .folder()
        .join(packages.named("rockery-", ".tar.gz"));
    said(
        Command::new("tar")
            .arg("-xf")
            .arg(tarball)
            .arg("-C")
            .arg(folder.path()),
    );
    let inside = folder
        .path()
        .join(format!("rockery-{}-{processor}-linux", version()));
    let libraries = fs::read_dir(inside.join("lib/rockery")).expect("the libraries");
    let libraries = libraries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.is_symlink());
    let wheel = packages.folder().join(packages.named("rockery-", ".whl"));
    said(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(folder.path().join("wheel")),
    );
    let module = folder.path().join("wheel/rockery/_rockery.abi3.so");
    let files: Vec<PathBuf> = libraries
        .chain(PROGRAMS.map(|name| inside.join("bin").join(name)))
        .chain([module])
        .collect();
    assert!(files.len() >= 7, "{files:?}");
    (folder, files)
}

/// Links of the README, units and entry points: what a package names is in it.
#[test]
fn links_units_and_plugins_of_the_packages_are_complete() {
    let (folder, _files) = unpacked(&Packages::made(), "x86_64");
    let inside = folder
        .path()
        .join(format!("rockery-{}-x86_64-linux", version()));
    let documents = inside.join("share/doc/rockery");
    let readme = fs::read_to_string(documents.join("README.md")).expect("the README");
    let links: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|link| !link.is_empty() && !link.contains("://"))
        .collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        // Source files are not installed.
        let is_source = ["apps/", "core/", "testing/"];
        if !is_source.iter().any(|folder| link.starts_with(folder)) {
            assert!(documents.join(link).exists(), "README.md links to {link}");
        }
    }
    let unit = |root: &Path| {
        let path = "share/doc/rockery/examples/systemd/rockery-nvme@.service";
        fs::read_to_string(root.join(path)).expect("the unit")
    };
    assert!(unit(&inside).contains("ExecStart=/usr/bin/rockery serve"));
    // The tarball's script writes the paths of its own installation.
    let prefix = folder.path().join("prefix");
    said(Command::new(inside.join("install.sh")).arg(&prefix));
    let expected = format!("ExecStart={}/bin/rockery serve", prefix.display());
    assert!(unit(&prefix).contains(&expected), "{}", unit(&prefix));
    let info = format!("wheel/rockery-{}.dist-info/entry_points.txt", version());
    let points = fs::read_to_string(folder.path().join(info)).expect("the entry points");
    assert_eq!(
        points,
        "[pytest11]\nrockery.pytest_plugin = rockery.pytest_plugin\n"
    );
}

#[test]
fn no_file_needs_more_than_glibc_2_28() {
    let (_folder, files) = unpacked(&Packages::made(), "x86_64");
    expect_glibc_2_28(&files, "ld-linux-x86-64.so.2");
}

/// Whether files need nothing but the C library of 2018, whose loader this is.
pub(crate) fn expect_glibc_2_28(files: &[PathBuf], loader: &str) {
    for file in files {
        let symbols = said(Command::new("objdump").arg("-T").arg(file));
        let versions = symbols
            .split(['(', ')', ' '])
            .filter_map(|word| word.strip_prefix("GLIBC_"));
        let number = |version: &str| {
            let mut numbers = version
                .split('.')
                .map(|number| number.parse().expect("GLIBC_2.17"));
            (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
        };
        let newest: (u32, u32) = versions
            .map(number)
            .max()
            .expect("every file calls the C library");
        assert!(
            newest <= GLIBC,
            "{} needs glibc {}.{}",
            file.display(),
            newest.0,
            newest.1
        );
        let headers = said(Command::new("objdump").arg("-p").arg(file));
        let needed = headers
            .lines()
            .filter_map(|line| line.trim().strip_prefix("NEEDED"));
        for library in needed.map(str::trim) {
            assert!(
                NEEDED.contains(&library) || library == loader,
                "{} needs {library}",
                file.display()
            );
        }
    }
}

/// Names with versions that a library exports.
pub(crate) fn exported(library: &Path) -> BTreeSet<String> {
    let listed = said(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let names = listed
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    names
        .filter(|name| name.contains('@'))
        .map(str::to_owned)
        .collect()
}

/// Versions of symbols are what another linker may do otherwise.
#[test]
fn packaged_libraries_export_what_a_build_for_this_machine_exports() {
    let (_folder, files) = unpacked(&Packages::made(), "x86_64");
    let here = programs::Rockery::built();
    for (name, built) in [
        ("libibverbs.so.1", "libibverbs.so"),
        ("librdmacm.so.1", "librdmacm.so"),
        ("librockery-providers.so", "libdv_stubs.so"),
    ] {
        let packaged = files.iter().find(|file| file.ends_with(name)).expect(name);
        let (ours, theirs) = (
            exported(packaged),
            exported(&here.path().with_file_name(built)),
        );
        assert!(
            !ours.is_empty() && ours == theirs,
            "{name}: {:?}",
            ours.symmetric_difference(&theirs)
        );
    }
}

/// The same files at another time, in another folder and by another user's settings; and packages for both
/// processors in one folder, as a release has them.
#[test]
fn packages_are_made_again_byte_for_byte() {
    let (packages, for_arm) = (Packages::made(), Packages::made_for_arm());
    let other = TempDir::new().expect("a temporary folder");
    let script = programs::workspace().join("packaging/package.py");
    let script = script.canonicalize().expect("our own script");
    let mut again = Command::new("sh");
    again
        .args(["-c", "umask 077 && exec \"$@\"", "sh"])
        .arg(script)
        .arg(other.path().join("out"))
        .args([Packages::built(), Packages::built_for_arm()]);
    said(
        again
            .current_dir(other.path())
            .env("DIST_PROFILE", Packages::profile())
            .env("TZ", "Asia/Tokyo"),
    );
    let sums = |folder: &Path| -> BTreeSet<String> {
        let text = fs::read_to_string(folder.join("SHA256SUMS")).expect("the checksums");
        text.lines().map(str::to_owned).collect()
    };
    let each = &sums(packages.folder()) | &sums(for_arm.folder());
    assert_eq!(each, sums(&other.path().join("out")));
    for folder in [packages.folder(), for_arm.folder()] {
        said(
            Command::new("sha256sum")
                .args(["-c", "--strict", "SHA256SUMS"])
                .current_dir(folder),
        );
    }
}

#[test]
fn the_bill_of_materials_lists_what_is_linked() {
    let packages = Packages::made();
    let path = packages
        .folder()
        .join(packages.named("rockery-", ".cdx.json"));
    let bill = fs::read_to_string(path).expect("the bill of materials");
    for linked in [
        "pkg:cargo/crc32fast@",
        "pkg:cargo/rockery-rnic@",
        "pkg:generic/openssl@",
    ] {
        assert!(bill.contains(linked), "{linked} is missing");
    }
    for absent in [
        "pkg:cargo/proptest@",
        "pkg:cargo/rockery-programs@",
        "pkg:cargo/syn@",
        "pkg:cargo/tempfile@",
    ] {
        assert!(!bill.contains(absent), "{absent} is in no package");
    }
}

#[test]
fn the_citation_has_the_version_of_the_workspace() {
    let citation =
        fs::read_to_string(programs::workspace().join("CITATION.cff")).expect("our own file");
    assert!(
        citation
            .lines()
            .any(|line| line == format!("version: {}", version())),
        "{citation}"
    );
}

/// A tag, the changelog's newest section and the version of Cargo.toml that differ stop `make dist`.
#[test]
fn version_changelog_and_tags_agree() {
    let script = programs::workspace().join("packaging/package.py");
    let examples = said(
        Command::new("python3")
            .args(["-B", "-m", "doctest", "-v"])
            .arg(script),
    );
    assert!(examples.contains("5 passed"), "{examples}");
    let packages = Packages::made();
    for (begin, end) in [
        ("rockery_", "_amd64.deb"),
        ("rockery-default_", ".deb"),
        ("rockery-", ".tar.gz"),
    ] {
        assert!(packages.named(begin, end).contains(version()));
    }
}
