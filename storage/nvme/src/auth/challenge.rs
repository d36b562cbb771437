//! The response to a DH-HMAC-CHAP challenge (Base 8.13.5.4): an HMAC over the challenge, into which the
//! Diffie-Hellman secret is mixed if there is one, both names, and the fields that identify the transaction.

use super::Hash;

/// A challenge with everything that its response depends on; both sides compute the response from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Challenge<'a> {
    pub(super) hash: Hash,
    pub(super) value: &'a [u8],
    /// The secret of the Diffie-Hellman exchange; `None` with the NULL group.
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
        // SC_C: no secure channel is requested.
        let fixed: [&[u8]; 5] = [&self.bound(), &sequence, &transaction, &[0], role];
        let names: [&[u8]; 3] = [first.as_bytes(), &[0], second.as_bytes()];
        self.hash.hmac(key, &[&fixed[..], &names[..]].concat())
    }

    /// The response of the host (Reply, R1).
    pub(super) fn answer_of_host(&self, key: &[u8]) -> Vec<u8> {
        self.answer(key, b"HostHost", self.host, self.subsystem)
    }

    /// The response of the controller (Success1, R2).
    pub(super) fn answer_of_controller(&self, key: &[u8]) -> Vec<u8> {
        self.answer(key, b"Controller", self.subsystem, self.host)
    }
}
