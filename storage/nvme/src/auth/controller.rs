//! DH-HMAC-CHAP on the side of the controller: it sends the challenge and checks the response of the host.

use wire::nvme::auth::{
    COMMON, Challenge as ChallengeHead, DHCHAP, Explanation, FAILED, Failure, GROUPS_AT, Head,
    Negotiate, Protocol, Reply, Success1, message,
};

use super::challenge::Challenge;
use super::group::Exchange;
use super::hash::same;
use super::{Group, Hash, Random, Secrets};

/// The state of one authentication transaction.
#[derive(Clone, Debug)]
enum State {
    /// The host has to send Negotiate: its hash functions and groups.
    AwaitingNegotiate,
    /// The host has to fetch this Challenge with Authentication Receive.
    SendingChallenge(Asked),
    /// The host has to send its Reply to this Challenge.
    AwaitingReply(Asked),
    /// The host has to fetch Success1, with the response to its own challenge; the response is empty if the
    /// host sent none.
    SendingSuccess(Hash, Vec<u8>),
    /// The host has to send Success2: it has verified the response of the controller.
    AwaitingSuccess2,
    /// Each side that was asked has proved that it has the secret.
    Authenticated,
    /// The host has to fetch Failure1 with this reason code explanation.
    SendingFailure(Explanation),
    /// The transaction failed; no further message is accepted or sent.
    Failed,
}

#[derive(Clone, Debug)]
struct Asked {
    transaction: u16,
    hash: Hash,
    group: Group,
    exchange: Option<Exchange>,
    public: Vec<u8>,
    value: Vec<u8>,
    sequence: u32,
}

/// The result of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The transaction goes on.
    Continues,
    /// The other side has proved that it has the secret.
    Authenticated,
    /// The authentication failed on either side: the connection has to be closed.
    Failed,
}

/// The state of DH-HMAC-CHAP on one connection, on the side of the controller.
#[derive(Clone, Debug)]
pub struct Authenticator {
    host: String,
    subsystem: String,
    secrets: Secrets,
    state: State,
    transaction: u16,
}

impl Authenticator {
    /// For a host that gave the name `host` in Connect.
    pub fn new(host: &str, subsystem: &str, secrets: Secrets) -> Self {
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        Self {
            host,
            subsystem,
            secrets,
            state: State::AwaitingNegotiate,
            transaction: 0,
        }
    }

    /// Whether a message is Negotiate, which begins a transaction.
    pub fn is_beginning(bytes: &[u8]) -> bool {
        Head::split(bytes)
            .is_some_and(|(head, _)| (head.class, head.id) == (COMMON, message::NEGOTIATE))
    }

    /// Processes a message of the host (the data of Authentication Send).
    pub fn receive(&mut self, bytes: &[u8], random: Random<'_>) -> Progress {
        let Some((head, _)) = Head::split(bytes) else {
            return self.fail(Explanation::Payload);
        };
        if matches!((head.class, head.id), (COMMON, message::FAILURE2)) {
            self.state = State::Failed;
            return Progress::Failed;
        }
        let state = std::mem::replace(&mut self.state, State::Failed);
        let heard = match (state, head.class, head.id) {
            // An authenticated host may authenticate again (reauthentication).
            (State::AwaitingNegotiate | State::Authenticated, COMMON, message::NEGOTIATE) => {
                self.transaction = head.transaction;
                self.negotiate(bytes, random)
            }
            (_, _, _) if head.transaction != self.transaction => Err(Explanation::Payload),
            (State::AwaitingReply(asked), DHCHAP, message::REPLY) => self.reply(asked, bytes),
            (State::AwaitingSuccess2, DHCHAP, message::SUCCESS2) => {
                Ok((State::Authenticated, Progress::Authenticated))
            }
            (State::Failed, _, _) => return Progress::Failed,
            _ => Err(Explanation::Message),
        };
        match heard {
            Ok((state, progress)) => {
                self.state = state;
                progress
            }
            Err(explanation) => self.fail(explanation),
        }
    }

    fn fail(&mut self, explanation: Explanation) -> Progress {
        self.state = State::SendingFailure(explanation);
        Progress::Failed
    }

    /// The next message for the host (the data of Authentication Receive); `None` while the host has to send
    /// one.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let transaction = self.transaction;
        match std::mem::replace(&mut self.state, State::Failed) {
            State::SendingChallenge(asked) => {
                let bytes = asked.to_bytes();
                self.state = State::AwaitingReply(asked);
                Some(bytes)
            }
            State::SendingSuccess(hash, answer) => {
                let (class, id, answers) =
                    (DHCHAP, message::SUCCESS1, u8::from(!answer.is_empty()));
                // Linux checks this field even if no response follows.
                let hash_length = hash.length() as u8;
                let head = Success1 {
                    class,
                    id,
                    transaction,
                    hash_length,
                    answers,
                };
                self.state = if answers == 1 {
                    State::AwaitingSuccess2
                } else {
                    State::Authenticated
                };
                Some([&head.to_bytes()[..], &answer].concat())
            }
            State::SendingFailure(explanation) => {
                let (class, id, reason) = (COMMON, message::FAILURE1, FAILED);
                let failure = Failure {
                    class,
                    id,
                    transaction,
                    reason,
                    explanation: explanation as u8,
                };
                Some(failure.to_bytes().to_vec())
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    fn negotiate(
        &self,
        bytes: &[u8],
        random: Random<'_>,
    ) -> Result<(State, Progress), Explanation> {
        let (head, protocols) = Negotiate::split(bytes).ok_or(Explanation::Payload)?;
        if head.secure_channel != 0 {
            return Err(Explanation::SecureChannel);
        }
        let protocols = protocols
            .chunks_exact(Protocol::SIZE)
            .take(head.protocols.into());
        let ours = protocols
            .filter_map(|it| Some(Protocol::split(it)?.0))
            .find(|it| it.id == DHCHAP);
        let protocol = ours.ok_or(Explanation::Protocol)?;
        let (hashes, groups) = (usize::from(protocol.hashes), usize::from(protocol.groups));
        let hashes = protocol
            .list
            .get(..hashes.min(GROUPS_AT))
            .unwrap_or_default();
        let groups = protocol.list[GROUPS_AT..]
            .get(..groups.min(60 - GROUPS_AT))
            .unwrap_or_default();
        let hash = Hash::ALL
            .into_iter()
            .find(|hash| hashes.contains(&(*hash as u8)));
        let hash = hash.ok_or(Explanation::Hash)?;
        let wanted = self
            .secrets
            .group
            .as_ref()
            .map_or(&Group::UNASKED[..], std::slice::from_ref);
        let group = wanted
            .iter()
            .copied()
            .find(|group| groups.contains(&(*group as u8)));
        let group = group.ok_or(Explanation::Group)?;
        let mut value = vec![0; hash.length()];
        random(&mut value);
        let mut sequence = [0; 4];
        random(&mut sequence);
        let sequence = u32::from_le_bytes(sequence).max(1);
        let (exchange, public) = group.begin(random).unzip();
        let (public, transaction) = (public.unwrap_or_default(), head.transaction);
        let asked = Asked {
            transaction,
            hash,
            group,
            exchange,
            public,
            value,
            sequence,
        };
        Ok((State::SendingChallenge(asked), Progress::Continues))
    }

    fn reply(&self, asked: Asked, bytes: &[u8]) -> Result<(State, Progress), Explanation> {
        let (head, rest) = Reply::split(bytes).ok_or(Explanation::Payload)?;
        let length = asked.hash.length();
        if usize::from(head.hash_length) != length {
            return Err(Explanation::Payload);
        }
        let public = usize::from(head.public_length);
        let (answer, rest) = rest.split_at_checked(length).ok_or(Explanation::Payload)?;
        let (challenge, rest) = rest.split_at_checked(length).ok_or(Explanation::Payload)?;
        let public = rest.get(..public).ok_or(Explanation::Payload)?;
        let shared = match &asked.exchange {
            None if public.is_empty() => None,
            None => return Err(Explanation::Payload),
            Some(exchange) => Some(exchange.end(public).ok_or(Explanation::Payload)?),
        };
        let Asked {
            hash,
            transaction,
            sequence,
            value,
            ..
        } = &asked;
        let ours = Challenge {
            hash: *hash,
            value,
            shared: shared.as_deref(),
            sequence: *sequence,
            transaction: *transaction,
            host: &self.host,
            subsystem: &self.subsystem,
        };
        if !same(
            answer,
            &ours.answer_of_host(&self.secrets.secret.key(&self.host)),
        ) {
            return Err(Explanation::Failed);
        }
        if head.challenges == 0 {
            return Ok((
                State::SendingSuccess(*hash, Vec::new()),
                Progress::Authenticated,
            ));
        }
        // A host that returns our own challenge may be reflecting our messages, and need not have the secret.
        if challenge == &value[..] {
            return Err(Explanation::Failed);
        }
        let secret = self
            .secrets
            .controller_secret
            .as_ref()
            .ok_or(Explanation::Failed)?;
        let theirs = Challenge {
            value: challenge,
            sequence: head.sequence,
            ..ours
        };
        let answer = theirs.answer_of_controller(&secret.key(&self.subsystem));
        Ok((State::SendingSuccess(*hash, answer), Progress::Continues))
    }
}

impl Asked {
    fn to_bytes(&self) -> Vec<u8> {
        let head = ChallengeHead {
            class: DHCHAP,
            id: message::CHALLENGE,
            transaction: self.transaction,
            hash_length: self.hash.length() as u8,
            hash: self.hash as u8,
            group: self.group as u8,
            public_length: self.public.len() as u16,
            sequence: self.sequence,
        };
        [&head.to_bytes()[..], &self.value, &self.public].concat()
    }
}
