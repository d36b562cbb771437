//! NBD clients of other projects on an export: the kernel's, which nbd-client connects, and libnbd, by nbdsh.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use programs::machine::until;
use programs::namespace::Process;
use programs::storage::{NQN, Server};
use programs::{Job, Machine, Rockery, StoragePlace};
use tempfile::TempDir;

const SECONDS: u64 = 60;
/// The port that IANA assigned to NBD.
const PORT: u16 = 10809;

/// A server with a disk in a file, its export over TCP, and a guest with the kernel's client.
struct Place {
    storage: StoragePlace,
    server: Process,
    export: Process,
}

impl Place {
    fn new() -> Self {
        let storage = StoragePlace::new();
        storage.shell("/sbin/modprobe nbd && mkdir -p /mnt");
        let (server, export) = (serve(&storage), export(&storage));
        Self {
            storage,
            server,
            export,
        }
    }

    fn image(&self) -> PathBuf {
        self.storage.file("disk")
    }

    /// KiB of the file that are allocated.
    fn allocated_kib(&self) -> u64 {
        fs::metadata(self.image()).expect("a file").blocks() / 2
    }

    /// Connects the kernel's client to the export by its name, over two connections.
    fn attach(&self) {
        let address = self.storage.server.address();
        self.shell(&format!(
            "nbd-client -N disk -b 4096 -C 2 {address} {PORT} /dev/nbd0 && nbd-client -c /dev/nbd0"
        ));
    }

    fn shell(&self, line: &str) -> String {
        self.storage.shell(line)
    }

    /// Kills the server, and starts it again.
    fn restart_server(&mut self) {
        kill(&mut self.server);
        self.server = serve(&self.storage);
    }

    /// Kills server and export, and starts both again.
    fn restart(&mut self) {
        kill(&mut self.export);
        self.restart_server();
        self.export = export(&self.storage);
    }
}

fn kill(process: &mut Process) {
    process.kill().expect("it was there");
    process.wait(SECONDS).expect("it ends");
}

fn serve(storage: &StoragePlace) -> Process {
    let disk = storage.file("disk").display().to_string();
    storage.serve_without_state(&format!(
        "{disk} --size 128MiB --subsystem {NQN} --listen {}:4420",
        storage.server.address()
    ))
}

fn export(storage: &StoragePlace) -> Process {
    let address = storage.server.address();
    let line = format!(
        "{} nvme export {address}:4420 --subsystem {NQN} --nbd {address}:{PORT}",
        Rockery::built().word()
    );
    let argv: Vec<&str> = line.split_whitespace().collect();
    let export = storage.server.start_plain(&argv).expect("it starts");
    storage
        .server
        .wait_for_listener(PORT, SECONDS)
        .expect("it listens");
    export
}

/// Runs a program on an image, which has to succeed; returns its output.
fn on_image(program: &str, words: &[&str], image: &Path) -> String {
    let done = Command::new(program)
        .args(words)
        .arg(image)
        .output()
        .expect("e2fsprogs is installed");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{program}: {said}");
    said
}

/// Bytes of the file system in the image, as `md5sum` prints them.
fn digest_in_image(name: &str, image: &Path) -> String {
    let line = format!(
        "debugfs -R 'cat /{name}' {} 2>/dev/null | md5sum",
        image.display()
    );
    let done = Command::new("sh")
        .args(["-c", &line])
        .output()
        .expect("a shell");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The kernel's client learns all flags of the export. A file system on it verifies what fio writes, its
/// trims reach the file below the server, and all of it is there without the client.
#[test]
fn the_kernels_client_has_a_file_system_on_an_export() {
    let mut place = Place::new();
    let listed = place.shell(&format!("nbd-client -l {}", place.storage.server.address()));
    assert!(listed.lines().any(|line| line == "disk"), "{listed}");
    place.attach();
    let queue = place.shell(
        "cd /sys/block/nbd0; cat size queue/write_cache queue/fua queue/logical_block_size \
         queue/discard_granularity",
    );
    assert_eq!(
        queue.lines().collect::<Vec<_>>(),
        ["262144", "write back", "1", "4096", "4096"]
    );
    place.shell("mkfs.ext4 -q /dev/nbd0 && mount /dev/nbd0 /mnt");
    place.shell(
        "fio --name=v --directory=/mnt --size=16M --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw \
         --bsrange=4k-256k --fsync=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7",
    );
    place.shell("dd if=/dev/urandom of=/mnt/gone bs=1M count=32 2>/dev/null; sync");
    let full = place.allocated_kib();
    place.shell("rm /mnt/gone; sync; fstrim /mnt");
    let trimmed = place.allocated_kib();
    assert!(trimmed + (24 << 10) < full, "{trimmed} of {full} KiB");
    let digest = place.shell(
        "dd if=/dev/urandom of=/mnt/kept bs=1M count=8 2>/dev/null; md5sum </mnt/kept; umount /mnt; \
         nbd-client -d /dev/nbd0 >/dev/null",
    );
    kill(&mut place.export);
    kill(&mut place.server);
    on_image("e2fsck", &["-fn"], &place.image());
    assert_eq!(digest_in_image("kept", &place.image()), digest);
}

/// Server and export are killed while the kernel writes. What was written durably before is there when the
/// client connects again, through the export that stayed or another one.
#[test]
fn the_kernels_client_connects_again_after_a_restart() {
    let mut place = Place::new();
    place.attach();
    place.shell("mkfs.ext4 -q /dev/nbd0");
    let mut digests = Vec::new();
    for (round, restart) in [Place::restart_server, Place::restart]
        .into_iter()
        .enumerate()
    {
        place.shell("mount /dev/nbd0 /mnt");
        digests.push(place.shell(&format!(
            "dd if=/dev/urandom of=/mnt/kept{round} bs=1M count=8 conv=fsync 2>/dev/null; sync; \
             md5sum </mnt/kept{round}"
        )));
        place.shell(
            "dd if=/dev/zero of=/mnt/torn bs=1M count=64 >/dev/null 2>&1 & echo $! >/tmp/writer",
        );
        let begun = "test -s /mnt/torn";
        let has_begun = until(SECONDS, || {
            Ok(place.storage.guest.shell(begun)?.succeeded())
        });
        assert!(has_begun.expect("the guest answers"));
        restart(&mut place);
        // The kernel waits for answers to the requests that it has sent, until it is disconnected. Then the
        // writer and the file system get errors, and what they could not write is forgotten.
        place.shell(
            "nbd-client -d /dev/nbd0 >/dev/null; i=0; \
             while kill -0 $(cat /tmp/writer) 2>/dev/null && [ $i -lt 600 ]; do i=$((i+1)); sleep 0.1; done; \
             umount /mnt",
        );
        place.attach();
        place.shell("mount /dev/nbd0 /mnt");
        for (number, digest) in digests.iter().enumerate() {
            assert_eq!(&place.shell(&format!("md5sum </mnt/kept{number}")), digest);
        }
        place.shell("rm -f /mnt/torn; umount /mnt");
    }
    place.shell("nbd-client -d /dev/nbd0 >/dev/null");
    kill(&mut place.export);
    kill(&mut place.server);
    on_image("e2fsck", &["-fn"], &place.image());
}

/// A process that is killed when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A disk as an NBD export at a socket, where none was before.
fn export_at(socket: &Path, server: &Server, words: &[&str]) -> Ended {
    _ = fs::remove_file(socket);
    let address = server.address().to_string();
    let mut export = Command::new(Rockery::built().path());
    export.args(["nvme", "export", &address, "--subsystem", NQN, "--nbd"]);
    export
        .arg(format!("unix:{}", socket.display()))
        .args(words)
        .stdout(Stdio::null());
    let export = Ended(export.spawn().expect("it was built"));
    assert!(until(SECONDS, || Ok(socket.exists())).expect("no error"));
    export
}

/// Runs a step of `probe/nbdsh.py`, which has to succeed.
#[track_caller]
fn nbdsh(step: &str, socket: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/probe/nbdsh.py");
    let uri = format!("nbd+unix:///disk?socket={}", socket.display());
    // The distribution's Python has the library.
    let done = Command::new("nbdsh")
        .env("PATH", "/usr/bin:/bin")
        .args(["-n", "-c", &format!("uri = {uri:?}; step = {step:?}")])
        .args(["-c", &format!("exec(open({script:?}).read())")])
        .output()
        .expect("python3-libnbd is installed");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(
        done.status.success() && said.contains(&format!("{step} done")),
        "{said}"
    );
}

/// Structured and simple replies, FUA, flush over another connection, zeros, trims, parts of blocks, block
/// status and refusals, each checked by nbdsh; then its data after kills of server and export, and read-only.
#[test]
fn nbdsh_uses_every_command_and_finds_its_data_after_a_restart() {
    let folder = TempDir::new().expect("a folder");
    let (disk, socket) = (folder.path().join("disk"), folder.path().join("nbd.sock"));
    let words = format!("{} --size 64MiB", disk.display());
    let mut server = Server::start(folder.path(), &words).expect("it starts");
    let first = export_at(&socket, &server, &[]);
    nbdsh("write", &socket);
    server.kill();
    drop(first);
    let server = Server::start(folder.path(), &words).expect("it starts again");
    let second = export_at(&socket, &server, &[]);
    nbdsh("verify", &socket);
    drop(second);
    let _third = export_at(&socket, &server, &["--read-only"]);
    nbdsh("read-only", &socket);
}
