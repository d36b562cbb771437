//! DH-HMAC-CHAP on both sides, and the commands that an unauthenticated host may send.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use nvme::auth::{Authenticator, Credentials, Group, Hash, Progress, Secret, Secrets, Supplicant};
use nvme::controller::{Hosts, Subsystem, Target};
use nvme::host::{Client, HostError, Options};
use nvme::serve::{BackendConfig, Bytes, Config, Server, Tuning};
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
    Secrets {
        secret: secret(host),
        controller_secret: controller.map(secret),
        group,
    }
}

/// Pseudo-random bytes, which differ from call to call and are the same in every run.
fn random(seed: u8) -> impl FnMut(&mut [u8]) {
    let mut next = u64::from(seed) + 1;
    move |bytes| {
        for byte in bytes {
            next = next
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = (next >> 33) as u8;
        }
    }
}

/// Runs a transaction whose messages pass through `between`; returns the result of each side, and all
/// messages.
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
    let mut host_progress = Progress::Continues;
    let mut controller_progress = Progress::Continues;
    while !message.is_empty() {
        between(said.len(), &mut message);
        said.push(message.clone());
        controller_progress = authenticator.receive(&message, &mut ours);
        let Some(mut answer) = authenticator.next_message() else {
            break;
        };
        between(said.len(), &mut answer);
        said.push(answer.clone());
        (message, host_progress) = supplicant.receive(&answer, &mut theirs);
        if host_progress == Progress::Failed && message.is_empty() {
            break;
        }
    }
    (controller_progress, host_progress, said)
}

#[test]
fn a_host_with_the_secret_is_authenticated() {
    let keep = |_: usize, _: &mut Vec<u8>| {};
    for group in [Group::Null, Group::Ffdhe2048, Group::Ffdhe3072] {
        for controller in [None, Some(9)] {
            let secrets = secrets(7, controller, Some(group));
            let (ours, theirs, said) = converse(secrets.clone(), secrets, keep);
            assert_eq!(
                (ours, theirs),
                (Progress::Authenticated, Progress::Authenticated),
                "{group:?}"
            );
            assert_eq!(said.len(), if controller.is_some() { 5 } else { 4 });
            assert_eq!(said[1].len(), 16 + 64 + group.length());
        }
    }
}

/// The host offers one hash function only, so the controller selects it.
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
        assert_eq!(
            (ours, theirs),
            (Progress::Authenticated, Progress::Authenticated),
            "{hash:?}"
        );
        assert_eq!(said[1].len(), 16 + hash.length());
    }
}

#[test]
fn a_host_with_another_secret_is_refused() {
    let null = Some(Group::Null);
    let keep = |_: usize, _: &mut Vec<u8>| {};
    let (ours, theirs, said) = converse(secrets(7, None, null), secrets(8, None, null), keep);
    assert_eq!((ours, theirs), (Progress::Failed, Progress::Failed));
    assert_eq!(
        Failure::split(said.last().unwrap()).unwrap().0.id,
        message::FAILURE1
    );
    // The controller has a wrong secret: the host refuses it.
    let (ours, theirs, said) = converse(secrets(7, Some(1), null), secrets(7, Some(2), null), keep);
    assert_eq!((ours, theirs), (Progress::Failed, Progress::Failed));
    assert_eq!(
        Failure::split(said.last().unwrap()).unwrap().0.id,
        message::FAILURE2
    );
    // The host challenges the controller, which has no secret.
    let (ours, _, _) = converse(secrets(7, None, null), secrets(7, Some(2), null), keep);
    assert_eq!(ours, Progress::Failed);
}

/// A flip of any bit of any message is detected, except in reserved and unused fields.
#[test]
fn damaged_and_truncated_messages_are_refused() {
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
            assert!(
                !convinced(at, &|message| message[byte] ^= 1),
                "byte {byte} of message {at}"
            );
        }
        for length in [0, 5, 15, to - 1] {
            assert!(
                !convinced(at, &|message| message.truncate(length)),
                "{length} bytes of message {at}"
            );
        }
    }
    for byte in [0, 1, 4, 5] {
        for at in 1..4 {
            assert!(
                !convinced(at, &|message| message[byte] ^= 0x40),
                "byte {byte} of message {at}"
            );
        }
    }
}

/// A host returns the challenge of the controller as its own challenge.
#[test]
fn a_reflected_challenge_is_refused() {
    let mut authenticator =
        Authenticator::new("nqn.2014-08.org:host", SUBSYSTEM, secrets(7, Some(7), None));
    let supplicant = Supplicant::new(
        "nqn.2014-08.org:host",
        SUBSYSTEM,
        secrets(7, Some(7), Some(Group::Null)),
        1,
    );
    authenticator.receive(&supplicant.begin(), &mut random(1));
    let challenge = authenticator.next_message().unwrap();
    let mut reply = vec![0; 16 + 128];
    (reply[0], reply[1], reply[4], reply[6], reply[8]) = (1, message::REPLY, 1, 64, 1);
    reply[80..].copy_from_slice(&challenge[16..80]);
    assert_eq!(
        authenticator.receive(&reply, &mut random(2)),
        Progress::Failed
    );
}

/// The messages of a transaction that succeeded, and the secrets of both sides in it.
struct Recording {
    secrets: Secrets,
    messages: Vec<Vec<u8>>,
}

impl Recording {
    /// A transaction with each group that the tests replay, without and with a challenge of the host.
    fn all() -> Vec<Self> {
        let of = |group, controller| {
            let secrets = secrets(7, controller, Some(group));
            let (ours, theirs, messages) = converse(secrets.clone(), secrets.clone(), |_, _| {});
            assert_eq!(
                (ours, theirs),
                (Progress::Authenticated, Progress::Authenticated)
            );
            Self { secrets, messages }
        };
        let groups = [Group::Null, Group::Ffdhe2048];
        groups
            .into_iter()
            .flat_map(|group| [of(group, None), of(group, Some(9))])
            .collect()
    }

    /// A target that has received nothing.
    fn target(&self) -> Authenticator {
        Authenticator::new("nqn.2014-08.org:host", SUBSYSTEM, self.secrets.clone())
    }

    fn host(&self, transaction: u16) -> Supplicant {
        Supplicant::new(
            "nqn.2014-08.org:host",
            SUBSYSTEM,
            self.secrets.clone(),
            transaction,
        )
    }
}

/// The messages of the host in their order, to a target with another challenge.
#[test]
fn a_recording_of_a_host_does_not_answer_another_challenge() {
    for recording in Recording::all() {
        let said = &recording.messages;
        for round in 0..3 {
            let mut target = recording.target();
            assert_eq!(
                target.receive(&said[0], &mut random(10 + round)),
                Progress::Continues
            );
            assert_ne!(
                target.next_message().unwrap(),
                said[1],
                "each challenge is another one"
            );
            assert_eq!(target.receive(&said[2], &mut random(20)), Progress::Failed);
            let failure = target.next_message().unwrap();
            assert_eq!(Failure::split(&failure).unwrap().0.id, message::FAILURE1);
        }
    }
}

/// Before the challenge, and instead of the response.
#[test]
fn recorded_messages_in_the_wrong_state_are_refused() {
    for recording in Recording::all() {
        let said = &recording.messages;
        for message in &said[2..] {
            let mut target = recording.target();
            assert_eq!(target.receive(message, &mut random(4)), Progress::Failed);
            let mut asked = recording.target();
            asked.receive(&said[0], &mut random(4));
            asked.next_message();
            assert_eq!(asked.receive(message, &mut random(4)), Progress::Failed);
        }
    }
}

/// To the connection that has accepted it.
#[test]
fn a_recorded_reply_is_accepted_once() {
    for recording in Recording::all() {
        let (mut first, mut host) = (recording.target(), recording.host(1));
        first.receive(&host.begin(), &mut random(5));
        let (answer, _) = host.receive(&first.next_message().unwrap(), &mut random(6));
        assert_ne!(first.receive(&answer, &mut random(7)), Progress::Failed);
        assert_eq!(first.receive(&answer, &mut random(7)), Progress::Failed);
    }
}

#[test]
fn a_host_with_a_challenge_detects_a_recording_of_a_target() {
    for recording in Recording::all() {
        let said = &recording.messages;
        let mut host = recording.host(0x1234);
        host.begin();
        assert_eq!(
            host.receive(&said[1], &mut random(30)).1,
            Progress::Continues
        );
        let (_, progress) = host.receive(&said[3], &mut random(31));
        let expected = if recording.secrets.controller_secret.is_some() {
            Progress::Failed
        } else {
            Progress::Authenticated
        };
        assert_eq!(progress, expected, "{:?}", recording.secrets.group);
    }
}

/// With the random numbers of the target, challenges are unique over all connections, and a recording of one
/// queue opens no other queue.
#[test]
fn challenges_are_unique_and_a_replay_opens_no_queue() {
    let target = target();
    let (mut admin, _) = connect(&target, 0, 0xffff);
    let mut supplicant = Supplicant::new(&host_name(1), SUBSYSTEM, secrets(7, None, None), 5);
    let send = |length: usize| auth::command(Fabrics::AuthenticationSend, 0, length as u32);
    let receive = || auth::command(Fabrics::AuthenticationReceive, 0, 4096);
    let negotiate = supplicant.begin();
    admin.give(send(negotiate.len()), &negotiate);
    let challenge = admin.take(receive(), 4096).unwrap();
    let (reply, _) = supplicant.receive(&challenge, &mut random(3));
    admin.give(send(reply.len()), &reply);
    assert!(admin.property(false, 0x1c).status().is_success());

    let mut challenges = vec![challenge[..80].to_vec()];
    for _ in 0..8 {
        let (mut other, _) = connect(&target, 0, 0xffff);
        other.give(send(negotiate.len()), &negotiate);
        let challenge = other.take(receive(), 4096).unwrap();
        assert_ne!(challenge[12..16], [0; 4], "a sequence number is not 0");
        challenges.push(challenge[..80].to_vec());
        other.give(send(reply.len()), &reply);
        let required = Status::AUTHENTICATION_REQUIRED.permanent();
        assert_eq!(other.property(false, 0x1c).status(), required);
        assert!(!other.connection.queue().is_trusted());
    }
    let count = challenges.len();
    challenges
        .iter_mut()
        .for_each(|challenge| _ = challenge.drain(..16));
    challenges.sort();
    challenges.dedup();
    assert_eq!(challenges.len(), count);
}

fn target() -> Arc<Target> {
    let target = Target::new();
    let subsystem = Subsystem::new(
        nqn(SUBSYSTEM),
        "serial".to_owned(),
        "model".to_owned(),
        Hosts::Any,
    );
    let secrets = Some(secrets(7, Some(9), Some(Group::Ffdhe2048)));
    let credentials = BTreeMap::from([(
        nqn(&host_name(1)),
        Credentials {
            secrets,
            tls_key: None,
        },
    )]);
    target
        .add_subsystem(subsystem.with_credentials(credentials))
        .unwrap();
    target
        .add_namespace(&nqn(SUBSYSTEM), memory_namespace(1))
        .unwrap();
    Arc::new(target)
}

/// Exchanges messages by commands; returns the result of the host, and the status of its last command.
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
        let Ok(heard) = line.take(auth::command(Fabrics::AuthenticationReceive, 0, 4096), 4096)
        else {
            return (Progress::Authenticated, status);
        };
        let (answer, progress) = supplicant.receive(&heard, &mut random);
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

/// The two largest groups take several times the processor time of the others: an unauthenticated host must
/// not be able to request them.
#[test]
fn the_largest_groups_are_used_only_where_they_are_configured() {
    let offer_one = |group: Group| {
        move |number: usize, message: &mut Vec<u8>| {
            if number == 0 {
                (message[8 + 3], message[8 + 4 + 30]) = (1, group as u8);
            }
        }
    };
    for group in Group::ALL {
        let is_used = !matches!(group, Group::Ffdhe6144 | Group::Ffdhe8192);
        let (ours, _, said) = converse(
            secrets(7, None, None),
            secrets(7, None, None),
            offer_one(group),
        );
        assert_eq!(ours == Progress::Authenticated, is_used, "{group:?}");
        if !is_used {
            let failure = Failure::split(&said[1]).unwrap().0;
            assert_eq!(
                (failure.id, failure.explanation),
                (message::FAILURE1, auth::Explanation::Group as u8)
            );
        }
    }
    let configured = secrets(7, None, Some(Group::Ffdhe6144));
    let (ours, _, _) = converse(configured, secrets(7, None, None), |_, _| {});
    assert_eq!(ours, Progress::Authenticated);
}

/// Negotiations that do not end in authentication are limited for each address; others are not.
#[test]
fn an_address_has_a_number_of_negotiations_that_come_to_nothing() {
    let target = target();
    let begin = || {
        let (mut line, _) = connect(&target, 0, 0xffff);
        let supplicant = Supplicant::new(&host_name(1), SUBSYSTEM, secrets(8, None, None), 5);
        let message = supplicant.begin();
        line.give(
            auth::command(Fabrics::AuthenticationSend, 0, message.len() as u32),
            &message,
        )
        .status()
    };
    let own = || secrets(7, Some(9), None);
    let most = nvme::limits::NEGOTIATIONS_MAX as usize;
    // Successful negotiations are not limited.
    for _ in 0..most / 8 {
        let (mut line, _) = connect(&target, 0, 0xffff);
        assert_eq!(authenticate(&mut line, own()).0, Progress::Authenticated);
    }
    let begun = (0..2 * most).filter(|_| begin().is_success()).count();
    assert_eq!(begun, most);
    assert_eq!(begin(), Status::COMMAND_INTERRUPTED);
    // Negotiations become available again with time, and the same connection may retry.
    let (mut line, _) = connect(&target, 0, 0xffff);
    assert_eq!(
        authenticate(&mut line, own()),
        (Progress::Failed, Status::COMMAND_INTERRUPTED)
    );
    line.now_ns += 1_000_000_000;
    assert_eq!(authenticate(&mut line, own()).0, Progress::Authenticated);
}

#[test]
fn no_command_of_an_unauthenticated_host_is_executed() {
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

    // Each queue authenticates.
    let (mut queue, _) = connect(&target, 1, result as u16);
    assert_eq!(queue.take(io(Io::Read, 0, 1), BLOCK), Err(required.plain()));
    assert_eq!(authenticate(&mut queue, own()).0, Progress::Authenticated);
    assert_eq!(
        queue.take(io(Io::Read, 0, 1), BLOCK).unwrap(),
        vec![0; BLOCK]
    );
    // The queue authenticates again, then fails with the wrong secret: the last result counts.
    assert_eq!(authenticate(&mut queue, own()).0, Progress::Authenticated);
    assert!(queue.take(io(Io::Read, 0, 1), BLOCK).is_ok());
    assert_eq!(
        authenticate(&mut queue, secrets(8, None, None)).0,
        Progress::Failed
    );
    assert_eq!(queue.take(io(Io::Read, 0, 1), BLOCK), Err(required.plain()));
}

#[test]
fn hosts_without_secrets_are_refused_under_any_name() {
    let target = target();
    let mut unauthenticated = Line::initialized(&target, 2, Digests::default());
    let refused = unauthenticated
        .connect_to(SUBSYSTEM, 0, 32, 0xffff, 0)
        .status();
    assert_eq!(refused, Status::CONNECT_INVALID_HOST.permanent());
    let (mut liar, _) = connect(&target, 0, 0xffff);
    assert_eq!(
        authenticate(&mut liar, secrets(8, None, None)).0,
        Progress::Failed
    );
    assert_eq!(
        liar.property(false, 0x1c).status(),
        Status::AUTHENTICATION_REQUIRED.permanent()
    );
    // A host without required authentication cannot be made to authenticate.
    let mut free = crate::support::admin(&crate::support::target(), 1, Digests::default()).0;
    let command = auth::command(Fabrics::AuthenticationSend, 0, 8);
    assert_eq!(
        free.give(command, &[0; 8]).status(),
        Status::COMMAND_SEQUENCE.permanent()
    );
    let mut long = auth::command(Fabrics::AuthenticationReceive, 0, 8192);
    assert_eq!(free.plain(long).status(), Status::INVALID_FIELD.permanent());
    long.cdw10 = 0;
    assert_eq!(free.plain(long).status(), Status::INVALID_FIELD.permanent());
}

/// A server of one namespace in memory, and our host.
struct Served {
    server: Server,
    state: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let memory = BackendConfig::Memory(Bytes(1 << 20));
        let config = live::config(vec![live::namespace(1, memory)]);
        Self {
            server: Server::start(config, Some(state.clone()), Tuning::default()).unwrap(),
            state,
            _folder: folder,
        }
    }

    /// The server ends, and another one starts with its state.
    fn restarted(self) -> Self {
        let Self {
            server,
            state,
            _folder,
        } = self;
        drop(server);
        let server =
            Server::start(Config::default(), Some(state.clone()), Tuning::default()).unwrap();
        Self {
            server,
            state,
            _folder,
        }
    }

    /// Connects our host, with I/O queues.
    fn connect(&self, secrets: Option<Secrets>) -> Result<Client, HostError> {
        let options = Options {
            secrets,
            ..live::options(1, false)
        };
        let address = self.server.addresses()[0];
        let mut client = Client::connect(address, &nqn(SUBSYSTEM), &options)?;
        client.queues(2, 8)?;
        Ok(client)
    }

    /// Sets the secrets of our host at the server.
    fn set_secrets(&self, secrets: Secrets) {
        let credentials = Credentials {
            secrets: Some(secrets),
            tls_key: None,
        };
        let host = nqn(&host_name(1));
        self.server
            .set_credentials(&nqn(SUBSYSTEM), host, Some(credentials))
            .unwrap();
    }
}

#[test]
fn without_required_authentication_a_host_may_have_a_secret() {
    let served = Served::new();
    assert!(served.connect(None).is_ok());
    assert!(served.connect(Some(secrets(7, None, None))).is_ok());
    assert!(
        served.connect(Some(secrets(7, Some(9), None))).is_err(),
        "a target that does not prove itself"
    );
}

/// Each queue authenticates, and so does the target if the host requests it.
#[test]
fn our_host_and_our_target_authenticate_each_other() {
    let served = Served::new();
    let mut free = served.connect(None).unwrap();
    served.set_secrets(secrets(7, Some(9), Some(Group::Ffdhe2048)));
    assert!(
        free.keep_alive().is_err(),
        "an unauthenticated host is disconnected"
    );
    assert!(matches!(served.connect(None), Err(HostError::NoSecret)));
    for wrong in [secrets(8, None, None), secrets(7, Some(8), None)] {
        let refused = served.connect(Some(wrong));
        assert!(matches!(refused, Err(HostError::NotBelieved)));
    }
    let mut one_way = served.connect(Some(secrets(7, None, None))).unwrap();
    let mut both = served.connect(Some(secrets(7, Some(9), None))).unwrap();
    assert!(one_way.namespace(1).is_ok() && both.namespace(1).is_ok());
}

/// A host whose secret changes has to connect again with the new one, after a restart too.
#[test]
fn secrets_change_at_run_time() {
    let served = Served::new();
    served.set_secrets(secrets(7, Some(9), Some(Group::Ffdhe2048)));
    let mut one_way = served.connect(Some(secrets(7, None, None))).unwrap();
    let mut both = served.connect(Some(secrets(7, Some(9), None))).unwrap();
    served.set_secrets(secrets(5, None, None));
    assert!(one_way.keep_alive().is_err() && both.keep_alive().is_err());
    assert!(matches!(
        served.connect(Some(secrets(7, None, None))),
        Err(HostError::NotBelieved)
    ));
    assert!(served.connect(Some(secrets(5, None, None))).is_ok());
    let served = served.restarted();
    assert!(matches!(served.connect(None), Err(HostError::NoSecret)));
    assert!(served.connect(Some(secrets(5, None, None))).is_ok());
}
