//! DH-HMAC-CHAP on the side of the host: it negotiates, answers the challenge, and challenges the controller
//! if it has its secret.

use wire::nvme::auth::{
    COMMON, Challenge as ChallengeHead, DHCHAP, Explanation, FAILED, Failure, GROUPS_AT, Head,
    Negotiate, Protocol, Reply, Success1, Success2, message,
};

use super::challenge::Challenge;
use super::hash::same;
use super::{Group, Hash, Progress, Random, Secrets};

#[derive(Clone, Debug)]
enum State {
    Negotiated,
    /// The response that the controller has to send in Success1; `None` if the host sent no challenge.
    Replied(Option<Vec<u8>>),
    Over,
}

/// The state of DH-HMAC-CHAP on one connection, on the side of the host.
#[derive(Clone, Debug)]
pub struct Supplicant {
    host: String,
    subsystem: String,
    secrets: Secrets,
    transaction: u16,
    state: State,
}

impl Supplicant {
    /// For the host `host`, which challenges the controller if `secrets` has a controller secret.
    pub fn new(host: &str, subsystem: &str, secrets: Secrets, transaction: u16) -> Self {
        let (host, subsystem) = (host.to_owned(), subsystem.to_owned());
        Self {
            host,
            subsystem,
            secrets,
            transaction,
            state: State::Negotiated,
        }
    }

    /// The Negotiate message, which begins the transaction.
    pub fn begin(&self) -> Vec<u8> {
        let (class, id, transaction) = (COMMON, message::NEGOTIATE, self.transaction);
        let head = Negotiate {
            class,
            id,
            transaction,
            secure_channel: 0,
            protocols: 1,
        };
        let groups = self
            .secrets
            .group
            .as_ref()
            .map_or(&Group::ALL[..], std::slice::from_ref);
        let mut list = [0; 60];
        for (place, hash) in list.iter_mut().zip(Hash::ALL) {
            *place = hash as u8;
        }
        for (place, group) in list[GROUPS_AT..].iter_mut().zip(groups) {
            *place = *group as u8;
        }
        let (hashes, groups) = (Hash::ALL.len() as u8, groups.len() as u8);
        let protocol = Protocol {
            id: DHCHAP,
            hashes,
            groups,
            list,
        };
        [&head.to_bytes()[..], &protocol.to_bytes()].concat()
    }

    /// Processes a message of the controller; returns the next message of the host, which may be empty, and
    /// the result.
    pub fn receive(&mut self, bytes: &[u8], random: Random<'_>) -> (Vec<u8>, Progress) {
        let state = std::mem::replace(&mut self.state, State::Over);
        let heard = match (state, Head::split(bytes)) {
            (_, Some((head, _))) if (head.class, head.id) == (COMMON, message::FAILURE1) => {
                return (Vec::new(), Progress::Failed);
            }
            (_, Some((head, _))) if head.transaction != self.transaction => {
                Err(Explanation::Payload)
            }
            (State::Negotiated, Some((head, _)))
                if (head.class, head.id) == (DHCHAP, message::CHALLENGE) =>
            {
                self.challenged(bytes, random)
            }
            (State::Replied(expected), Some((head, _)))
                if (head.class, head.id) == (DHCHAP, message::SUCCESS1) =>
            {
                self.success1(bytes, expected.as_deref())
            }
            _ => Err(Explanation::Message),
        };
        heard.unwrap_or_else(|explanation| {
            let (class, id, transaction) = (COMMON, message::FAILURE2, self.transaction);
            let explanation = explanation as u8;
            let failure = Failure {
                class,
                id,
                transaction,
                reason: FAILED,
                explanation,
            };
            (failure.to_bytes().to_vec(), Progress::Failed)
        })
    }

    fn challenged(
        &mut self,
        bytes: &[u8],
        random: Random<'_>,
    ) -> Result<(Vec<u8>, Progress), Explanation> {
        let (head, rest) = ChallengeHead::split(bytes).ok_or(Explanation::Payload)?;
        let hash = Hash::parse(head.hash).ok_or(Explanation::Hash)?;
        let group = Group::parse(head.group).ok_or(Explanation::Group)?;
        if self.secrets.group.is_some_and(|wanted| wanted != group) {
            return Err(Explanation::Group);
        }
        let length = hash.length();
        if usize::from(head.hash_length) != length {
            return Err(Explanation::Payload);
        }
        let (value, rest) = rest.split_at_checked(length).ok_or(Explanation::Payload)?;
        let public = rest
            .get(..head.public_length.into())
            .ok_or(Explanation::Payload)?;
        let (shared, own_public) = match group.begin(random) {
            None => (None, Vec::new()),
            Some((exchange, own)) => (Some(exchange.end(public).ok_or(Explanation::Payload)?), own),
        };
        let theirs = Challenge {
            hash,
            value,
            shared: shared.as_deref(),
            sequence: head.sequence,
            transaction: self.transaction,
            host: &self.host,
            subsystem: &self.subsystem,
        };
        let answer = theirs.answer_of_host(&self.secrets.secret.key(&self.host));
        let mut own = vec![0; length];
        let (mut sequence, mut expected) = (0, None);
        if let Some(secret) = &self.secrets.controller_secret {
            random(&mut own);
            let mut number = [0; 4];
            random(&mut number);
            sequence = u32::from_le_bytes(number).max(1);
            let ours = Challenge {
                value: &own,
                sequence,
                ..theirs
            };
            expected = Some(ours.answer_of_controller(&secret.key(&self.subsystem)));
        }
        let head = Reply {
            class: DHCHAP,
            id: message::REPLY,
            transaction: self.transaction,
            hash_length: length as u8,
            challenges: u8::from(expected.is_some()),
            public_length: own_public.len() as u16,
            sequence,
        };
        self.state = State::Replied(expected);
        Ok((
            [&head.to_bytes()[..], &answer, &own, &own_public].concat(),
            Progress::Continues,
        ))
    }

    fn success1(
        &self,
        bytes: &[u8],
        expected: Option<&[u8]>,
    ) -> Result<(Vec<u8>, Progress), Explanation> {
        let Some(expected) = expected else {
            return Ok((Vec::new(), Progress::Authenticated));
        };
        let (head, rest) = Success1::split(bytes).ok_or(Explanation::Payload)?;
        let answer = rest
            .get(..usize::from(head.hash_length))
            .ok_or(Explanation::Payload)?;
        if head.answers == 0 || !same(answer, expected) {
            return Err(Explanation::Failed);
        }
        let success = Success2 {
            class: DHCHAP,
            id: message::SUCCESS2,
            transaction: self.transaction,
        };
        Ok((success.to_bytes().to_vec(), Progress::Authenticated))
    }
}
