//! NVMe/TCP in TLS with OpenSSL's own programs at the other end, and keys that nvme-cli made. Python derives
//! the TLS PSK from a key.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use programs::machine::until;
use programs::ports::free_port;
use programs::probe::Probe;
use programs::storage::{HOST, HOST_ID, NQN, Server};
use programs::{Job, Machine, Rockery, StoragePlace};
use tempfile::TempDir;

const SECONDS: u64 = 60;

/// Prints the identity, and writes the key that TLS gets, by RFC 5869, RFC 8446 and the TCP transport
/// specification, or in the form `compat` as libnvme before 1.16, as a session of OpenSSL: its programs take
/// keys without for SHA-256 only.
const DERIVE: &str = r#"
import base64, hashlib, hmac, struct, sys
text, host, subsystem, version, form, file = sys.argv[1:]
number, encoded = text.split(":")[1:3]
raw = base64.b64decode(encoded)[:-4]
name = "sha384" if len(raw) == 48 else "sha256"
mac = lambda key, data: hmac.new(key, data, name).digest()
def expand_label(key, label, context):
    label, context = b"tls13 " + label, context.encode()
    info = struct.pack(">HB", len(raw), len(label)) + label + bytes([len(context)]) + context
    if form == "compat":
        info = struct.pack("<H", len(raw)) + label + context
    return mac(mac(bytes(len(raw)), key), info + b"\x01")
retained = expand_label(raw, b"HostNQN", host) if number != "00" else raw
code = "02" if name == "sha384" else "01"
identity = context = f"NVMe0R{code} {host} {subsystem}"
if version == "1":
    digest = base64.b64encode(mac(retained, f"{host} {subsystem} NVMe-over-Fabrics".encode())).decode()
    identity, context = f"NVMe1R{code} {host} {subsystem} {digest}", f"{code} {digest}"
octets = lambda kind, data: bytes([kind, len(data)]) + data
key = expand_label(retained, b"nvme-tls-psk", context)
session = octets(2, b"\x01") + octets(2, b"\x03\x04") + octets(4, bytes([0x13, int(code)]))
session = octets(0x30, session + octets(4, b"") + octets(4, key))
print(identity)
print(key.hex())
name = "SSL SESSION PARAMETERS"
open(file, "w").write(f"-----BEGIN {name}-----\n{base64.encodebytes(session).decode()}-----END {name}-----\n")
"#;

fn output(program: &str, arguments: &[&str]) -> String {
    let done = Command::new(program)
        .args(arguments)
        .output()
        .expect("it is installed");
    let text = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{program}: {text}");
    text
}

/// A key by SHA-256 (1) or SHA-384 (2).
fn key(hash: &str) -> String {
    let printed = output("nvme", &["gen-tls-key", &format!("--hmac={hash}")]);
    printed
        .lines()
        .find(|line| line.starts_with("NVMeTLSkey-1:"))
        .expect("a key")
        .trim()
        .to_owned()
}

/// The identity and the TLS PSK of a key.
struct Derived {
    identity: String,
    /// In hexadecimal digits.
    key: String,
    /// A file for OpenSSL.
    session: String,
}

/// The forms of the derivation.
const RFC8446: &str = "rfc8446";
const COMPAT: &str = "compat";

/// How both ends derive the TLS PSK from a key.
#[derive(Clone, Copy, Debug)]
struct Derivation {
    /// The hash of the key: SHA-256 (1) or SHA-384 (2).
    hash: &'static str,
    /// The version of the identity.
    version: &'static str,
    form: &'static str,
}

impl Derivation {
    fn all() -> impl Iterator<Item = Self> {
        let of = |form| {
            [("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")].map(|(hash, version)| Self {
                hash,
                version,
                form,
            })
        };
        [RFC8446, COMPAT].into_iter().flat_map(of)
    }

    /// The cipher suite with the hash.
    fn cipher(self) -> &'static str {
        match self.hash {
            "1" => "AES_128_GCM_SHA256",
            _ => "AES_256_GCM_SHA384",
        }
    }

    fn derived(self, key: &str, folder: &Path) -> Derived {
        derived_as(key, self.version, self.form, folder)
    }
}

fn derived(key: &str, version: &str, folder: &Path) -> Derived {
    derived_as(key, version, RFC8446, folder)
}

fn derived_as(key: &str, version: &str, form: &str, folder: &Path) -> Derived {
    let session = folder.join("session").display().to_string();
    let printed = output(
        "python3",
        &["-c", DERIVE, key, HOST, NQN, version, form, &session],
    );
    let (identity, key) = printed.trim().split_once('\n').expect("two lines");
    Derived {
        identity: identity.to_owned(),
        key: key.to_owned(),
        session,
    }
}

/// A server whose only host has this key.
fn serve(folder: &Path, key: &str) -> Server {
    let config = config(folder, key, "127.0.0.1:0");
    Server::start(folder, &format!("--config {config}")).expect("it starts")
}

fn config(folder: &Path, key: &str, address: &str) -> String {
    let config = folder.join("config");
    let text = format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\n[subsystem.host.\"{HOST}\"]\ntls-key = \"{key}\"\n\
         [[subsystem.namespace]]\nid = 1\nmemory = \"16MiB\"\n\
         [[port]]\naddress = \"{address}\"\ntls = true\n"
    );
    std::fs::write(&config, text).expect("a file");
    config.display().to_string()
}

/// ICReq and ICResp begin so: kind, flags, and their length twice.
const REQUEST: [u8; 8] = [0, 0, 128, 0, 128, 0, 0, 0];
const RESPONSE: [u8; 8] = [1, 0, 128, 0, 128, 0, 0, 0];

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn initialize_request() -> [u8; 128] {
    let mut request = [0; 128];
    request[..8].copy_from_slice(&REQUEST);
    request
}

fn has_response(said: &[u8]) -> bool {
    said.windows(8).any(|it| it == RESPONSE)
}

/// A client of OpenSSL that sends ICReq when it has connected.
struct OpensslClient {
    child: Ended,
    said: PathBuf,
}

impl OpensslClient {
    /// Starts the client, whose output is in `folder`.
    fn start(folder: &Path, address: &str, arguments: &[&str]) -> Self {
        let said = folder.join("said");
        let mut child = Command::new("openssl")
            .args(["s_client", "-connect", address, "-ign_eof", "-nocommands"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&said).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .map(Ended)
            .expect("it is installed");
        // After a failed handshake no process reads it.
        _ = child
            .0
            .stdin
            .as_mut()
            .map(|stdin| stdin.write_all(&initialize_request()));
        Self { child, said }
    }

    /// What the client has printed: about the connection, and the bytes of the target.
    fn said(&self) -> Vec<u8> {
        std::fs::read(&self.said).unwrap_or_default()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said()).into_owned()
    }

    /// Waits for ICResp.
    #[track_caller]
    fn expect_response(&self, what: &str) {
        let answered = || Ok(has_response(&self.said()));
        assert!(
            until(SECONDS, answered).expect("no error"),
            "{what}: {}",
            self.text()
        );
    }

    /// Waits for the client to end with an error.
    #[track_caller]
    fn expect_failure(&mut self, what: &str) {
        let status = self.child.0.wait().expect("it ends");
        assert!(!status.success(), "{what}: {}", self.text());
    }
}

/// A server of OpenSSL, which keeps what it receives.
struct OpensslServer {
    _child: Ended,
    address: String,
    heard: PathBuf,
}

impl OpensslServer {
    /// Starts the server, and waits until it listens.
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let heard = folder.join("heard");
        let _child = Command::new("openssl")
            .args(["s_server", "-accept", &address, "-nocert", "-quiet"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&heard).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .map(Ended)
            .expect("it is installed");
        let listens = || {
            Ok(std::fs::read_to_string("/proc/net/tcp")
                .is_ok_and(|it| it.contains(&format!(":{port:04X} 00000000:0000 0A"))))
        };
        assert!(until(SECONDS, listens).expect("no error"));
        Self {
            _child,
            address,
            heard,
        }
    }

    fn heard(&self) -> Vec<u8> {
        std::fs::read(&self.heard).unwrap_or_default()
    }
}

#[test]
fn openssl_connects_with_the_key() {
    for derivation in Derivation::all() {
        let folder = TempDir::new().expect("a folder");
        let key = key(derivation.hash);
        let server = serve(folder.path(), &key);
        let address = server.address().to_string();
        let Derived {
            identity, session, ..
        } = derivation.derived(&key, folder.path());
        let client = |session: &str| {
            let both = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
            let tls = ["-tls1_3", "-ciphersuites", both];
            let psk = ["-psk_identity", &identity, "-psk_session", session];
            OpensslClient::start(folder.path(), &address, &[&tls[..], &psk].concat())
        };
        let connected = client(&session);
        connected.expect_response(&format!("{derivation:?}"));
        let text = connected.text();
        assert!(
            text.contains(derivation.cipher()) && text.contains("TLSv1.3"),
            "{text}"
        );
        // The same name with another key.
        let other = derivation.derived(&self::key(derivation.hash), folder.path());
        let mut refused = client(&other.session);
        refused.expect_failure("another key");
        let text = refused.text();
        assert!(!text.contains("Reused, TLSv1.3"), "{text}");
    }
}

/// The log names the identity, escaped, and says what to do; the client hears the alert of RFC 8446, 6.2.
#[test]
fn an_unknown_identity_and_a_wrong_key_are_in_the_log() {
    let folder = TempDir::new().expect("a folder");
    let key = key("1");
    let server = serve(folder.path(), &key);
    let address = server.address().to_string();
    let handshake = |identity: &str, secret: &str| {
        let done = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                &address,
                "-tls1_3",
                "-ciphersuites",
                "TLS_AES_128_GCM_SHA256",
            ])
            .args(["-psk_identity", identity, "-psk", secret])
            .stdin(Stdio::null())
            .output()
            .expect("it is installed");
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let Derived { identity, .. } = derived(&key, "1", folder.path());
    let wrong = "11".repeat(32);
    let said = handshake("somebody\u{1b}[31m else", &wrong);
    assert!(said.contains("unknown psk identity"), "{said}");
    let said = handshake(&identity, &wrong);
    assert!(said.contains("decrypt error"), "{said}");
    let log = || server.log();
    let expected = [
        "unknown PSK identity",
        "somebody",
        "--tls-key",
        "does not have the key of PSK identity",
        NQN,
    ];
    let has_all = || Ok(expected.iter().all(|text| log().contains(text)));
    assert!(until(SECONDS, has_all).expect("no error"), "{}", log());
    assert!(!log().contains('\u{1b}'), "{}", log());
}

/// Arguments of clients that offer less than TLS 1.3 with the key: an older version with the same key, no
/// key, other ciphers.
fn lesser_offers(derived: &Derived) -> [Vec<&str>; 6] {
    let identity = ["-psk_identity", &derived.identity];
    let psk = ["-psk", &derived.key];
    let session = ["-psk_session", &derived.session];
    let weak = ["-tls1_2", "-cipher", "PSK:@SECLEVEL=0"];
    let older = "ECDHE-PSK-AES256-CBC-SHA384:DHE-PSK-AES256-GCM-SHA384";
    let older = ["-tls1_2", "-cipher", older];
    let other = ["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"];
    [
        [&weak[..], &identity, &psk].concat(),
        [&older[..], &identity, &psk].concat(),
        vec!["-tls1_2"],
        vec!["-tls1_3"],
        // The client could do better, and does without the key.
        vec!["-no_tls1_1"],
        [&other[..], &identity, &session].concat(),
    ]
}

/// A peer that offers less than TLS 1.3 with the key, or no TLS at all, is refused before the first PDU.
#[test]
fn a_target_in_tls_is_not_talked_down() {
    let folder = TempDir::new().expect("a folder");
    let key = key("1");
    let server = serve(folder.path(), &key);
    let address = server.address().to_string();
    let derived = derived(&key, "1", folder.path());
    let lesser = lesser_offers(&derived);
    for arguments in &lesser {
        let mut client = OpensslClient::start(folder.path(), &address, arguments);
        client.expect_failure(&format!("{arguments:?}"));
        assert!(
            !has_response(&client.said()),
            "{arguments:?}: {}",
            client.text()
        );
    }
    let mut plain = TcpStream::connect(server.address()).expect("it listens");
    plain.write_all(&initialize_request()).expect("it is there");
    let mut answer = Vec::new();
    // An alert, or nothing; and then its end.
    _ = plain.read_to_end(&mut answer);
    assert!(!has_response(&answer), "{answer:?}");
    let metrics = server.ask("serve metrics").expect("it answers");
    let refused = format!("{{reason=\"no-tls\"}} {}", lesser.len() + 1);
    assert!(metrics.contains(&refused), "{refused}: {metrics}");

    // The same key in TLS 1.3 is what there is.
    let tls = ["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"];
    let psk = ["-psk_identity", &derived.identity];
    let session = ["-psk_session", &derived.session];
    let all = [&tls[..], &psk, &session].concat();
    OpensslClient::start(folder.path(), &address, &all).expect_response("TLS 1.3");
}

/// A host with a key sends nothing to a target that offers TLS 1.2 with it, or no TLS.
#[test]
fn a_host_with_a_key_is_not_talked_down() {
    let folder = TempDir::new().expect("a folder");
    let key = key("1");
    let file = folder.path().join("key");
    std::fs::write(&file, &key).expect("a file");
    let Derived {
        identity,
        key: secret,
        ..
    } = derived(&key, "1", folder.path());
    let host = |address: &str| {
        let done = Command::new(Rockery::built().path())
            .args([
                "nvme",
                "id-ctrl",
                address,
                "--subsystem",
                NQN,
                "--host",
                HOST,
            ])
            .args(["--tls-key", &format!("@{}", file.display())])
            .output()
            .expect("it was built");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            !done.status.success() && said.contains("TLS with the target failed"),
            "{said}"
        );
    };
    let plain = Server::start(folder.path(), "--memory 16M").expect("it starts");
    host(&plain.address().to_string());

    let psk = ["-psk_identity", &identity, "-psk", &secret];
    let older = ["-tls1_2", "-cipher", "PSK:@SECLEVEL=0"];
    let server = OpensslServer::start(folder.path(), &[&older[..], &psk].concat());
    host(&server.address);
    assert_eq!(server.heard(), b"");
}

/// Without certificates, our host refuses every target that does not have the key.
#[test]
fn our_host_speaks_to_openssl_with_the_key() {
    let folder = TempDir::new().expect("a folder");
    for derivation in Derivation::all() {
        let key = key(derivation.hash);
        let file = folder.path().join("key");
        std::fs::write(&file, format!("{key}\n")).expect("a file");
        let Derived {
            identity, session, ..
        } = derivation.derived(&key, folder.path());
        let psk = ["-psk_identity", &identity, "-psk_session", &session];
        let server = OpensslServer::start(folder.path(), &[&["-tls1_3"], &psk[..]].concat());
        // It gets no answer, so it is ended.
        let _host = Command::new(Rockery::built().path())
            .args(["nvme", "id-ctrl", &server.address])
            .args(["--subsystem", NQN, "--host", HOST])
            .args(["--tls-key", &format!("@{}", file.display())])
            .args(["--tls-identity", derivation.version])
            .args((derivation.form == COMPAT).then_some("--tls-key-compat"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(Ended)
            .expect("it was built");
        let asked = || Ok(server.heard().starts_with(&REQUEST));
        assert!(
            until(SECONDS, asked).expect("no error"),
            "{derivation:?}: {:?}",
            server.heard()
        );
    }
}

/// The whole of it, with what the command line offers.
#[test]
fn our_host_uses_our_disk_in_tls() {
    let folder = TempDir::new().expect("a folder");
    let key = key("2");
    let server = serve(folder.path(), &key);
    let file = folder.path().join("key");
    std::fs::write(&file, &key).expect("a file");
    let rockery = Rockery::built();
    let nvme = |words: &str, key: &str| {
        let line = format!(
            "{} nvme {words} --host {HOST} --tls-key {key} 2>&1",
            rockery.path().display()
        );
        Command::new("sh")
            .args(["-c", &line])
            .output()
            .expect("a shell")
    };
    let (address, at) = (server.address(), format!("@{}", file.display()));
    let found = nvme(&format!("discover {address}"), &at);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains(&format!("{NQN} tls")), "{found}");
    let to = format!("{address} --subsystem {NQN}");
    assert!(nvme(&format!("write {to} </bin/sh"), &at).status.success());
    let read = nvme(&format!("read {to} --blocks 4"), &at).stdout;
    assert!(read == std::fs::read("/bin/sh").expect("it is there")[..4 * 4096]);
    let refused = nvme(&format!("id-ctrl {to}"), &self::key("1"));
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(
        !refused.status.success() && said.contains("TLS with the target failed"),
        "{said}"
    );
}

/// Keys for the kernel: the hash (1 is SHA-256, 2 SHA-384), the version of the identity, and the cipher.
const KERNEL_KEYS: [(&str, &str, &str); 3] = [
    ("1", "0", "AES_128_GCM"),
    ("1", "1", "AES_128_GCM"),
    ("2", "1", "AES_256_GCM"),
];

/// The program that makes the kernel's handshakes, while it runs in the guest.
struct Agent<'a>(&'a StoragePlace);

impl<'a> Agent<'a> {
    fn start(place: &'a StoragePlace, identity: &str, key: &str) -> Self {
        place.shell(&format!(
            "/tmp/handshake '{identity}' {key} >/tmp/agent 2>&1 & echo $! >/tmp/agent.pid; i=0; \
             until grep -q ready /tmp/agent || [ $i = 100 ]; do i=$((i+1)); sleep 0.1; done; \
             grep -q ready /tmp/agent || cat /tmp/agent"
        ));
        Self(place)
    }

    fn said(&self) -> String {
        self.0.shell("cat /tmp/agent")
    }

    fn log(&self) -> String {
        self.0.shell("cat /tmp/agent; dmesg | tail -n 20")
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        _ = self.0.guest.shell("kill $(cat /tmp/agent.pid)");
    }
}

/// The kernel with its own TLS, as host and as target. A program makes its handshakes, as it wants; the keys
/// come from its own keyring, under the identities that it looks for.
#[test]
fn the_kernel_speaks_tls_as_host_and_as_target() {
    let place = StoragePlace::authenticating();
    let agent = Probe::compile_with("cc", "handshake", &["-lssl", "-lcrypto"])
        .expect("libssl-dev is installed");
    place.bring(agent.path());
    place.shell("/sbin/modprobe tls && /sbin/modprobe nvmet_tcp");
    let folder = TempDir::new().expect("a folder");
    for (hash, version, cipher) in KERNEL_KEYS {
        let key = key(hash);
        the_kernel_uses_our_disk(&place, &folder, &key, version, cipher);
        we_use_the_kernels_disk(&place, &folder, &key, version, cipher);
    }
}

fn the_kernel_uses_our_disk(
    place: &StoragePlace,
    folder: &TempDir,
    key: &str,
    version: &str,
    cipher: &str,
) {
    let address = place.server.address();
    let config = config(folder.path(), key, &format!("{address}:4420"));
    _ = std::fs::remove_file(place.file("state"));
    let mut server = place.serve(&format!("--config {config}"));
    let Derived { identity, key, .. } = derived(key, version, folder.path());
    let options = format!(
        "transport=tcp,traddr={address},trsvcid=4420,nqn={NQN},hostnqn={HOST},hostid={HOST_ID},\
         nr_io_queues=1,tls"
    );
    let connect = || {
        place
            .guest
            .shell(&format!("echo '{options}' >/dev/nvme-fabrics"))
            .expect("the guest answers")
    };
    {
        let wrong = key.chars().rev().collect::<String>();
        let agent = Agent::start(place, &identity, &wrong);
        assert!(!connect().succeeded(), "{identity}: {}", agent.log());
        assert!(
            agent.said().contains("refused"),
            "{identity}: {}",
            agent.log()
        );
    }
    let agent = Agent::start(place, &identity, &key);
    let connected = connect();
    assert!(
        connected.succeeded(),
        "{identity}: {}\n{}",
        connected.output,
        agent.log()
    );
    place.wait_for_disk();
    place.shell(
        "fio --name=v --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=8 \
         --rw=randrw --bsrange=4k-128k --size=4M --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7",
    );
    place.nvme(&format!("disconnect -n {NQN}"));
    assert_eq!(
        agent.said().matches(cipher).count(),
        2,
        "both queues: {}",
        agent.log()
    );
    server.kill().expect("it is ours");
    server.wait(SECONDS).expect("it ends");
}

fn we_use_the_kernels_disk(
    place: &StoragePlace,
    folder: &TempDir,
    key: &str,
    version: &str,
    cipher: &str,
) {
    let address = place.guest.address();
    let Derived {
        identity,
        key: secret,
        ..
    } = derived(key, version, folder.path());
    let agent = Agent::start(place, &identity, &secret);
    let made = place.guest.shell(&format!(
        "mount -t configfs config /sys/kernel/config 2>/dev/null; \
         n=/sys/kernel/config/nvmet; s=$n/subsystems/{NQN}; h=$n/hosts/{HOST}; p=$n/ports/1; \
         [ -d $s ] || {{ dd if=/dev/zero of=/tmp/disk bs=1M count=4 2>/dev/null; mkdir $s $h $p && \
         ln -s $h $s/allowed_hosts/host && mkdir $s/namespaces/1 && \
         echo /tmp/disk >$s/namespaces/1/device_path && echo 1 >$s/namespaces/1/enable && \
         echo {address} >$p/addr_traddr && echo tcp >$p/addr_trtype && echo 4420 >$p/addr_trsvcid && \
         echo ipv4 >$p/addr_adrfam && echo tls1.3 >$p/addr_tsas && ln -s $s $p/subsystems/disk; }}"
    ));
    let made = made.expect("the guest answers");
    assert!(made.succeeded(), "{}\n{}", made.output, agent.log());
    let file = folder.path().join("key").display().to_string();
    let nvme = |act: &str, key: &str, rest: &str| {
        std::fs::write(&file, key).expect("a file");
        let rockery = Rockery::built().path().display().to_string();
        let line = format!(
            "{rockery} nvme {act} {address}:4420 --subsystem {NQN} --host {HOST} --tls-key @{file} \
             --tls-identity {version} {rest} 2>&1"
        );
        let mut job = place
            .server
            .start_plain(&["sh", "-c", &line])
            .expect("it starts");
        job.wait(SECONDS).expect("in time")
    };
    let written = nvme("write", key, "</bin/sh");
    assert!(
        written.succeeded(),
        "{identity}: {}\n{}",
        written.output,
        agent.log()
    );
    let read = nvme("read", key, "--blocks 32 | cmp -n 16384 - /bin/sh");
    assert!(
        read.succeeded(),
        "{identity}: {}\n{}",
        read.output,
        agent.log()
    );
    assert_eq!(
        agent.said().matches(cipher).count(),
        4,
        "two connections each: {}",
        agent.log()
    );
    let other = self::key(if cipher.contains("256") { "2" } else { "1" });
    assert!(
        !nvme("id-ctrl", &other, "").succeeded(),
        "{identity}: {}",
        agent.log()
    );
}

/// From key to data, as docs/nvme.md has it: keys of `rockery nvme gen-key`, which nvme-cli accepts, a server
/// that listens for TLS only, and an export on the host.
#[test]
fn keys_of_rockery_go_from_gen_key_to_an_export() {
    let folder = TempDir::new().unwrap();
    let rockery = Rockery::built();
    let script = format!(
        r#"set -eu
        exec 2>&1
        ip link set lo up
        cd {folder}; chmod 700 .; export XDG_RUNTIME_DIR=$PWD; umask 077
        R={rockery}
        $R nvme gen-key dhchap --bits 512 >secret.txt
        $R nvme gen-key tls --bits 384 >key.txt
        nvme check-dhchap-key --key=$(cat secret.txt)
        nvme check-tls-key --key=$(cat key.txt)
        $R serve nvme disk.img --size 10MiB --tls 127.0.0.1:4420 --subsystem nqn.2024-01.org.example:disk &
        trap "kill $!" EXIT
        until $R serve status >/dev/null 2>&1; do sleep .1; done
        NAME=nqn.2024-01.org.example:host
        $R serve secrets nqn.2024-01.org.example:disk $NAME --secret @secret.txt --tls-key @key.txt
        $R nvme id-ctrl 127.0.0.1:4420 --host $NAME || echo without a key
        $R nvme id-ctrl 127.0.0.1:4421 --host $NAME || echo at no port
        $R nvme connect 127.0.0.1:4420 --host $NAME --secret @secret.txt --tls-key @key.txt
        nbdinfo --size "nbd+unix:///?socket=$PWD/rockery/nvme/disk.sock"
        $R nvme disconnect
        $R nvme gen-key tls --bits 512 || echo no such key
        "#,
        folder = folder.path().display(),
        rockery = rockery.path().display(),
    );
    let said = output("unshare", &["--net", "--", "sh", "-c", &script]);
    for expected in [
        "Key is valid (HMAC 0, length 64",
        "Key is valid (HMAC 2, length 48",
        "give --tls-key\nwithout a key",
        "127.0.0.1:4421 failed: Connection refused (os error 111); no program listens there",
        "\n10485760\n",
        "\nlistening on 127.0.0.1:4420, TLS\n",
        "256 and 384 bits: --bits 256 or 384\nno such key",
    ] {
        assert!(said.contains(expected), "{expected:?}: {said}");
    }
}
