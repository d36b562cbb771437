//! The controller's side: it asks, and believes or not.

use wire::nvme::auth::{
    COMMON, Challenge as ChallengeHead, DHCHAP, Explanation, FAILED, Failure, GROUPS_AT, Head, Negotiate,
    Protocol, Reply, Success1, message,
};

use super::challenge::Challenge;
use super::group::Exchange;
use super::hash::same;
use super::{Group, Hash, Random, Secrets};

/// Where a conversation stands.
#[derive(Clone, Debug)]
enum State {
    /// The host has to say what it can.
    Fresh,
    /// The host has to fetch this challenge.
    Challenging(Asked),
    /// The host has to answer it.
    Asked(Asked),
    /// The host has to fetch that it is believed, and the answer to its own challenge, which may be none.
    Believing(Hash, Vec<u8>),
    /// The host has to say that it believes the controller.
    AwaitingBelief,
    /// Both believe.
    Done,
    /// The host has to fetch that it is not believed, and why.
    Failing(Explanation),
    /// There is nothing more to say.
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

/// What a message of the host led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is not over.
    Continues,
    /// The host is who it says.
    Authenticated,
    /// It is not, or does not believe us: the connection should end.
    Failed,
}

/// One connection's conversation.
#[derive(Clone, Debug)]
pub struct Authenticator {
    host: String,
    subsystem: String,
    secrets: Secrets,
    state: State,
    transaction: u16,
}

impl Authenticator {
    /// For a host that says it is `host`.
    pub fn new(host: &str, subsystem: &str, secrets: Secrets) -> Self {
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        Self { host, subsystem, secrets, state: State::Fresh, transaction: 0 }
    }

    /// Hears a message (Authentication Send).
    pub fn hear(&mut self, bytes: &[u8], random: Random<'_>) -> Progress {
        let Some((head, _)) = Head::split(bytes) else { return self.fail(Explanation::Payload) };
        if matches!((head.class, head.id), (COMMON, message::FAILURE2)) {
            self.state = State::Failed;
            return Progress::Failed;
        }
        let state = std::mem::replace(&mut self.state, State::Failed);
        let heard = match (state, head.class, head.id) {
            // Who is known may begin again.
            (State::Fresh | State::Done, COMMON, message::NEGOTIATE) => {
                self.transaction = head.transaction;
                self.negotiate(bytes, random)
            }
            (_, _, _) if head.transaction != self.transaction => Err(Explanation::Payload),
            (State::Asked(asked), DHCHAP, message::REPLY) => self.reply(asked, bytes),
            (State::AwaitingBelief, DHCHAP, message::SUCCESS2) => Ok((State::Done, Progress::Authenticated)),
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
        self.state = State::Failing(explanation);
        Progress::Failed
    }

    /// What it says next (Authentication Receive); `None` when it is the host's turn.
    pub fn say(&mut self) -> Option<Vec<u8>> {
        let transaction = self.transaction;
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Challenging(asked) => {
                let bytes = asked.to_bytes();
                self.state = State::Asked(asked);
                Some(bytes)
            }
            State::Believing(hash, answer) => {
                let (class, id, answers) = (DHCHAP, message::SUCCESS1, u8::from(!answer.is_empty()));
                // Linux wants it right even where no answer follows.
                let hash_length = hash.length() as u8;
                let head = Success1 { class, id, transaction, hash_length, answers };
                self.state = if answers == 1 { State::AwaitingBelief } else { State::Done };
                Some([&head.to_bytes()[..], &answer].concat())
            }
            State::Failing(explanation) => {
                let (class, id, reason) = (COMMON, message::FAILURE1, FAILED);
                let failure = Failure { class, id, transaction, reason, explanation: explanation as u8 };
                Some(failure.to_bytes().to_vec())
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    fn negotiate(&self, bytes: &[u8], random: Random<'_>) -> Result<(State, Progress), Explanation> {
        let (head, protocols) = Negotiate::split(bytes).ok_or(Explanation::Payload)?;
        if head.secure_channel != 0 {
            return Err(Explanation::SecureChannel);
        }
        let protocols = protocols.chunks_exact(Protocol::SIZE).take(head.protocols.into());
        let ours = protocols.filter_map(|it| Some(Protocol::split(it)?.0)).find(|it| it.id == DHCHAP);
        let protocol = ours.ok_or(Explanation::Protocol)?;
        let (hashes, groups) = (usize::from(protocol.hashes), usize::from(protocol.groups));
        let hashes = protocol.list.get(..hashes.min(GROUPS_AT)).unwrap_or_default();
        let groups = protocol.list[GROUPS_AT..].get(..groups.min(60 - GROUPS_AT)).unwrap_or_default();
        let hash = Hash::ALL.into_iter().find(|hash| hashes.contains(&(*hash as u8)));
        let hash = hash.ok_or(Explanation::Hash)?;
        let wanted = self.secrets.group.as_ref().map_or(&Group::ALL[..], std::slice::from_ref);
        let group = wanted.iter().copied().find(|group| groups.contains(&(*group as u8)));
        let group = group.ok_or(Explanation::Group)?;
        let mut value = vec![0; hash.length()];
        random(&mut value);
        let mut sequence = [0; 4];
        random(&mut sequence);
        let sequence = u32::from_le_bytes(sequence).max(1);
        let (exchange, public) = group.begin(random).unzip();
        let (public, transaction) = (public.unwrap_or_default(), head.transaction);
        let asked = Asked { transaction, hash, group, exchange, public, value, sequence };
        Ok((State::Challenging(asked), Progress::Continues))
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
        let Asked { hash, transaction, sequence, value, .. } = &asked;
        let ours = Challenge {
            hash: *hash,
            value,
            shared: shared.as_deref(),
            sequence: *sequence,
            transaction: *transaction,
            host: &self.host,
            subsystem: &self.subsystem,
        };
        if !same(answer, &ours.answer_of_host(&self.secrets.secret.key(&self.host))) {
            return Err(Explanation::Failed);
        }
        if head.challenges == 0 {
            return Ok((State::Believing(*hash, Vec::new()), Progress::Authenticated));
        }
        // Whoever answers with the question has seen nothing but our own: a reflection.
        if challenge == &value[..] {
            return Err(Explanation::Failed);
        }
        let secret = self.secrets.controller_secret.as_ref().ok_or(Explanation::Failed)?;
        let theirs = Challenge { value: challenge, sequence: head.sequence, ..ours };
        let answer = theirs.answer_of_controller(&secret.key(&self.subsystem));
        Ok((State::Believing(*hash, answer), Progress::Continues))
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
