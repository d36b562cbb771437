//! What is answered, and how (Base 8.13.5.4): over the challenge, which the exchange's secret is mixed into
//! where there is one, both names, and what identifies the conversation.

use super::Hash;

/// A challenge, as whoever answers it and whoever checks the answer see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge<'a> {
    pub(super) hash: Hash,
    pub(super) value: &'a [u8],
    /// What Diffie and Hellman's exchange gave both.
    pub(super) shared: Option<&'a [u8]>,
    pub(super) sequence: u32,
    pub(super) transaction: u16,
    pub(super) host: &'a str,
    pub(super) subsystem: &'a str,
}

impl Challenge<'_> {
    fn bound(&self) -> Vec<u8> {
        match self.shared {
            None => self.value.to_vec(),
            Some(shared) => self.hash.hmac(&self.hash.digest(shared), &[self.value]),
        }
    }

    fn answer(&self, key: &[u8], role: &[u8], first: &str, second: &str) -> Vec<u8> {
        let (sequence, transaction) = (self.sequence.to_le_bytes(), self.transaction.to_le_bytes());
        // No secure channel is asked for: 0.
        let fixed: [&[u8]; 5] = [&self.bound(), &sequence, &transaction, &[0], role];
        let names: [&[u8]; 3] = [first.as_bytes(), &[0], second.as_bytes()];
        self.hash.hmac(key, &[&fixed[..], &names[..]].concat())
    }

    /// What a host says.
    pub(super) fn answer_of_host(&self, key: &[u8]) -> Vec<u8> {
        self.answer(key, b"HostHost", self.host, self.subsystem)
    }

    /// What a controller says.
    pub(super) fn answer_of_controller(&self, key: &[u8]) -> Vec<u8> {
        self.answer(key, b"Controller", self.subsystem, self.host)
    }
}
