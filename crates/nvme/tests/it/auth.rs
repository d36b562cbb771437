//! DH-HMAC-CHAP, both sides of it, and what a host may do before it has proved who it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvme::auth::{Authenticator, Credentials, Group, Hash, Progress, Secret, Secrets, Supplicant};
use nvme::host::{Client, HostError, Options};
use nvme::serve::{BackendConfig, Bytes, Config, Server, Tuning};
use nvme::target::{Hosts, Subsystem, Target};
use wire::nvme::auth::{self, CONNECT_AUTHENTICATE, Failure, message};
use wire::nvme::tcp::Digests;
use wire::nvme::{Fabrics, Io, Status};

use crate::live;
use crate::support::{BLOCK, Line, SUBSYSTEM, host_name, io, memory_namespace, nqn};

fn secret(byte: u8, length: usize, transformation: Option<Hash>) -> Secret {
    Secret::new(&vec![byte; length], transformation).unwrap()
}

fn secrets(host: u8, controller: Option<u8>, group: Option<Group>) -> Secrets {
    let secret = |byte| secret(byte, 32, Some(Hash::Sha256));
    Secrets { secret: secret(host), controller_secret: controller.map(secret), group }
}

/// Bytes that differ from call to call, the same in every run.
fn random(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = u64::from(seed) + 1;
    move |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (next >> 33) as u8;
        }
    }
}

/// A conversation, whose messages go through `between`; what each side thinks at its end, and all that was
/// said.
fn converse(
    controller: Secrets,
    host: Secrets,
    mut between: impl FnMut(usize, &mut Vec<u8>),
) -> (Progress, Progress, Vec<Vec<u8>>) {
    let mut authenticator = Authenticator::new("nqn.2014-08.org:host", SUBSYSTEM, controller);
    let mut supplicant = Supplicant::new("nqn.2014-08.org:host", SUBSYSTEM, host, 0x1234);
    let (mut ours, mut theirs) = (random(1), random(2));
    let mut said = Vec::new();
    let mut message = supplicant.begin();
    let mut believed_by_host = Progress::Continues;
    let mut believed = Progress::Continues;
    while !message.is_empty() {
        between(said.len(), &mut message);
        said.push(message.clone());
        believed = authenticator.hear(&message, &mut ours);
        let Some(mut answer) = authenticator.say() else { break };
        between(said.len(), &mut answer);
        said.push(answer.clone());
        (message, believed_by_host) = supplicant.hear(&answer, &mut theirs);
        if believed_by_host == Progress::Failed && message.is_empty() {
            break;
        }
    }
    (believed, believed_by_host, said)
}

#[test]
fn who_has_the_secret_is_believed() {
    let keep = |_: usize, _: &mut Vec<u8>| {};
    for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
        for controller in [None, Some(9)] {
            let secrets = secrets(7, controller, Some(group));
            let (ours, theirs, said) = converse(secrets.clone(), secrets, keep);
            assert_eq!((ours, theirs), (Progress::Authenticated, Progress::Authenticated), "{group:?}");
            assert_eq!(said.len(), if controller.is_some() { 5 } else { 4 });
            assert_eq!(said[1].len(), 16 + 64 + group.length());
        }
    }
}

/// The host offers one hash function only, so that is taken.
#[test]
fn every_hash_function_serves() {
    for hash in Hash::ALL {
        let offer_one = |number: usize, message: &mut Vec<u8>| {
            if number == 0 {
                (message[8 + 2], message[8 + 4]) = (1, hash as u8);
            }
        };
        let secrets = secrets(7, Some(9), Some(Group::Null));
        let (ours, theirs, said) = converse(secrets.clone(), secrets, offer_one);
        assert_eq!((ours, theirs), (Progress::Authenticated, Progress::Authenticated), "{hash:?}");
        assert_eq!(said[1].len(), 16 + hash.length());
    }
}

#[test]
fn who_has_another_is_not() {
    let null = Some(Group::Null);
    let keep = |_: usize, _: &mut Vec<u8>| {};
    let (ours, theirs, said) = converse(secrets(7, None, null), secrets(8, None, null), keep);
    assert_eq!((ours, theirs), (Progress::Failed, Progress::Failed));
    assert_eq!(Failure::split(said.last().unwrap()).unwrap().0.id, message::FAILURE1);
    // The controller's secret is wrong: it is the host that does not believe.
    let (ours, theirs, said) = converse(secrets(7, Some(1), null), secrets(7, Some(2), null), keep);
    assert_eq!((ours, theirs), (Progress::Failed, Progress::Failed));
    assert_eq!(Failure::split(said.last().unwrap()).unwrap().0.id, message::FAILURE2);
    // The controller has none, though the host asks.
    let (ours, _, _) = converse(secrets(7, None, null), secrets(7, Some(2), null), keep);
    assert_eq!(ours, Progress::Failed);
}

/// Each bit of each message matters, but those that are reserved or describe what is not used.
#[test]
fn damaged_and_cut_messages_convince_nobody() {
    let secrets = || secrets(7, Some(9), Some(Group::Null));
    let convinced = |at: usize, damage: &dyn Fn(&mut Vec<u8>)| {
        let between = |number: usize, message: &mut Vec<u8>| {
            if number == at {
                damage(message);
            }
        };
        let (ours, theirs, _) = converse(secrets(), secrets(), between);
        (ours, theirs) == (Progress::Authenticated, Progress::Authenticated)
    };
    assert!(convinced(9, &|_| {}));
    for (at, from, to) in [(1, 16, 80), (2, 16, 144), (3, 16, 80)] {
        for byte in (from..to).step_by(7) {
            assert!(!convinced(at, &|message| message[byte] ^= 1), "byte {byte} of message {at}");
        }
        for length in [0, 5, 15, to - 1] {
            assert!(!convinced(at, &|message| message.truncate(length)), "{length} bytes of message {at}");
        }
    }
    for byte in [0, 1, 4, 5] {
        for at in 1..4 {
            assert!(!convinced(at, &|message| message[byte] ^= 0x40), "byte {byte} of message {at}");
        }
    }
}

/// What a host hears it may send back: it is not an answer.
#[test]
fn a_reflection_convinces_nobody() {
    let mut authenticator = Authenticator::new("nqn.2014-08.org:host", SUBSYSTEM, secrets(7, Some(7), None));
    let supplicant =
        Supplicant::new("nqn.2014-08.org:host", SUBSYSTEM, secrets(7, Some(7), Some(Group::Null)), 1);
    authenticator.hear(&supplicant.begin(), &mut random(1));
    let challenge = authenticator.say().unwrap();
    let mut reply = vec![0; 16 + 128];
    (reply[0], reply[1], reply[4], reply[6], reply[8]) = (1, message::REPLY, 1, 64, 1);
    reply[80..].copy_from_slice(&challenge[16..80]);
    assert_eq!(authenticator.hear(&reply, &mut random(2)), Progress::Failed);
}

fn target() -> Arc<Target> {
    let target = Target::new();
    let subsystem = Subsystem::new(nqn(SUBSYSTEM), "serial".to_owned(), "model".to_owned(), Hosts::Any);
    let secrets = Some(secrets(7, Some(9), Some(Group::Ffdhe2048)));
    let credentials = BTreeMap::from([(nqn(&host_name(1)), Credentials { secrets, tls_key: None })]);
    target.add_subsystem(subsystem.with_credentials(credentials)).unwrap();
    target.add_namespace(&nqn(SUBSYSTEM), memory_namespace(1)).unwrap();
    Arc::new(target)
}

/// Talks through commands; returns whether the host believes, and the status of what it sent last.
fn authenticate(line: &mut Line, secrets: Secrets) -> (Progress, Status) {
    let mut supplicant = Supplicant::new(&host_name(1), SUBSYSTEM, secrets, 5);
    let mut random = random(3);
    let mut message = supplicant.begin();
    loop {
        let command = auth::command(Fabrics::AuthenticationSend, 0, message.len() as u32);
        let status = line.give(command, &message).status();
        if !status.is_success() {
            return (Progress::Failed, status);
        }
        let Ok(heard) = line.take(auth::command(Fabrics::AuthenticationReceive, 0, 4096), 4096) else {
            return (Progress::Authenticated, status);
        };
        let (answer, progress) = supplicant.hear(&heard, &mut random);
        if answer.is_empty() {
            return (progress, status);
        }
        message = answer;
    }
}

fn connect(target: &Arc<Target>, queue: u16, controller: u16) -> (Line, u64) {
    let mut line = Line::initialized(target, 1, Digests::default());
    let connected = line.connect_to(SUBSYSTEM, queue, 32, controller, 0);
    assert!(connected.status().is_success(), "{:?}", connected.status());
    (line, connected.result)
}

#[test]
fn nothing_is_done_for_a_host_that_has_not_proved_who_it_is() {
    let target = target();
    let required = Status::AUTHENTICATION_REQUIRED.permanent();
    let (mut admin, result) = connect(&target, 0, 0xffff);
    assert_eq!(result & CONNECT_AUTHENTICATE, CONNECT_AUTHENTICATE);
    assert_eq!(admin.property(false, 0x1c).status(), required);
    assert!(!admin.connection.queue().is_trusted());
    let own = || secrets(7, Some(9), None);
    assert_eq!(authenticate(&mut admin, own()).0, Progress::Authenticated);
    admin.enable();
    let queues = wire::nvme::Command {
        opcode: wire::nvme::Admin::SetFeatures as u8,
        cdw10: wire::nvme::feature::QUEUES.into(),
        ..Default::default()
    };
    assert!(admin.plain(queues).status().is_success());

    // Each queue proves it anew.
    let (mut queue, _) = connect(&target, 1, result as u16);
    assert_eq!(queue.take(io(Io::Read, 0, 1), BLOCK), Err(required.plain()));
    assert_eq!(authenticate(&mut queue, own()).0, Progress::Authenticated);
    assert_eq!(queue.take(io(Io::Read, 0, 1), BLOCK).unwrap(), vec![0; BLOCK]);
    // Again, and with the wrong secret this time: it was the last that counts.
    assert_eq!(authenticate(&mut queue, own()).0, Progress::Authenticated);
    assert!(queue.take(io(Io::Read, 0, 1), BLOCK).is_ok());
    assert_eq!(authenticate(&mut queue, secrets(8, None, None)).0, Progress::Failed);
    assert_eq!(queue.take(io(Io::Read, 0, 1), BLOCK), Err(required.plain()));
}

#[test]
fn hosts_without_secrets_do_not_come_in_by_another_name() {
    let target = target();
    let mut stranger = Line::initialized(&target, 2, Digests::default());
    let refused = stranger.connect_to(SUBSYSTEM, 0, 32, 0xffff, 0).status();
    assert_eq!(refused, Status::CONNECT_INVALID_HOST.permanent());
    let (mut liar, _) = connect(&target, 0, 0xffff);
    assert_eq!(authenticate(&mut liar, secrets(8, None, None)).0, Progress::Failed);
    assert_eq!(liar.property(false, 0x1c).status(), Status::AUTHENTICATION_REQUIRED.permanent());
    // A host that need not authenticate cannot be made to.
    let mut free = crate::support::admin(&crate::support::target(), 1, Digests::default()).0;
    let command = auth::command(Fabrics::AuthenticationSend, 0, 8);
    assert_eq!(free.give(command, &[0; 8]).status(), Status::COMMAND_SEQUENCE.permanent());
    let mut long = auth::command(Fabrics::AuthenticationReceive, 0, 8192);
    assert_eq!(free.plain(long).status(), Status::INVALID_FIELD.permanent());
    long.cdw10 = 0;
    assert_eq!(free.plain(long).status(), Status::INVALID_FIELD.permanent());
}

/// Our own host on our own target: each queue proves itself, and the target as well when it is asked. Who is
/// told
/// another secret at run time has to come again with that one, after a restart too.
#[test]
fn our_host_proves_itself_and_secrets_change_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let config = live::config(vec![live::namespace(1, BackendConfig::Memory(Bytes(1 << 20)))]);
    let start = |config| Server::start(config, Some(state.clone()), Tuning::default()).unwrap();
    let mut server = start(config);
    let (name, host) = (nqn(SUBSYSTEM), nqn(&host_name(1)));
    let address = server.addresses()[0];
    let with = |secrets: Option<Secrets>| Options { secrets, ..live::options(1, false) };
    let connect = |secrets| -> Result<Client, HostError> {
        let mut client = Client::connect(address, &name, &with(secrets))?;
        client.queues(2, 8)?;
        Ok(client)
    };
    let mut free = connect(None).unwrap();
    assert!(connect(Some(secrets(7, None, None))).is_ok(), "whom nobody asks need not say");
    assert!(connect(Some(secrets(7, Some(9), None))).is_err(), "a target that does not prove itself");

    let tell = |server: &mut Server, secrets: Option<Secrets>| {
        let credentials = secrets.map(|it| Credentials { secrets: Some(it), tls_key: None });
        server.set_credentials(&name, host.clone(), credentials).unwrap();
    };
    tell(&mut server, Some(secrets(7, Some(9), Some(Group::Ffdhe2048))));
    assert!(free.keep_alive().is_err(), "who has proved nothing has to go");
    assert!(matches!(connect(None), Err(HostError::NoSecret)));
    assert!(matches!(connect(Some(secrets(8, None, None))), Err(HostError::NotBelieved)));
    assert!(matches!(connect(Some(secrets(7, Some(8), None))), Err(HostError::NotBelieved)));
    let mut one_way = connect(Some(secrets(7, None, None))).unwrap();
    let mut both = connect(Some(secrets(7, Some(9), None))).unwrap();
    assert!(one_way.namespace(1).is_ok() && both.namespace(1).is_ok());

    tell(&mut server, Some(secrets(5, None, None)));
    assert!(one_way.keep_alive().is_err() && both.keep_alive().is_err());
    assert!(matches!(connect(Some(secrets(7, None, None))), Err(HostError::NotBelieved)));
    assert!(connect(Some(secrets(5, None, None))).is_ok());
    drop(server);

    let server = start(Config::default());
    let address = server.addresses()[0];
    let connect = |secrets| Client::connect(address, &name, &with(secrets));
    assert!(matches!(connect(None), Err(HostError::NoSecret)));
    assert!(connect(Some(secrets(5, None, None))).is_ok());
}
