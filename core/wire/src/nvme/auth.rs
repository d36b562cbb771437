//! In-band authentication: DH-HMAC-CHAP (Base 8.13.5). Messages are heads of fixed size with values behind
//! them.

use super::{Command, Fabrics, fabrics};
use crate::layout::layouts;

layouts! {
    /// The head of every message.
    Head[8] {
        /// The authentication type: [`COMMON`] or [`DHCHAP`].
        class: u8 = 0;
        /// Message ID: see [`message`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
    }
    /// The authentication protocols that a host supports. [`Protocol`]s follow.
    Negotiate[8] {
        /// Authentication type: [`COMMON`].
        class: u8 = 0;
        /// Authentication identifier: [`message::NEGOTIATE`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
        /// Whether a secure channel is to be made of it: 0.
        secure_channel: u8 = 6;
        /// Protocols that follow.
        protocols: u8 = 7;
    }
    /// A protocol that a host supports, with its hash functions and groups.
    Protocol[64] {
        /// Authentication protocol identifier: [`DHCHAP`].
        id: u8 = 0;
        /// Number of hash functions in the list (HALEN).
        hashes: u8 = 2;
        /// Number of Diffie-Hellman groups in the list (DHLEN).
        groups: u8 = 3;
        /// The hash functions, then from place 30 on the groups.
        list: [u8; 60] = 4;
    }
    /// The controller's challenge. The challenge value follows, then the controller's public value.
    Challenge[16] {
        /// Authentication type: [`DHCHAP`].
        class: u8 = 0;
        /// Authentication identifier: [`message::CHALLENGE`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
        /// Bytes of the challenge: as many as the hash has.
        hash_length: u8 = 6;
        /// The hash function.
        hash: u8 = 8;
        /// Identifier of the Diffie-Hellman group.
        group: u8 = 9;
        /// Bytes of the public value.
        public_length: u16 = 10;
        /// A number that counts up, never 0.
        sequence: u32 = 12;
    }
    /// The host's answer. It follows, then the host's challenge, then its public value.
    Reply[16] {
        /// Authentication type: [`DHCHAP`].
        class: u8 = 0;
        /// Authentication identifier: [`message::REPLY`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
        /// Bytes of the answer, and of the challenge.
        hash_length: u8 = 6;
        /// Whether the host challenges the controller: 1.
        challenges: u8 = 8;
        /// Bytes of the public value.
        public_length: u16 = 10;
        /// A number that counts up; 0 when the host does not challenge.
        sequence: u32 = 12;
    }
    /// The controller believes the host. Its own answer follows if it was challenged.
    Success1[16] {
        /// Authentication type: [`DHCHAP`].
        class: u8 = 0;
        /// Authentication identifier: [`message::SUCCESS1`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
        /// Bytes of the answer.
        hash_length: u8 = 6;
        /// Whether there is one: 1.
        answers: u8 = 8;
    }
    /// The host believes the controller.
    Success2[16] {
        /// Authentication type: [`DHCHAP`].
        class: u8 = 0;
        /// Authentication identifier: [`message::SUCCESS2`].
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
    }
    /// Somebody does not believe, or understand.
    Failure[8] {
        /// Authentication type: [`COMMON`].
        class: u8 = 0;
        /// [`message::FAILURE1`] of the controller, [`message::FAILURE2`] of the host.
        id: u8 = 1;
        /// Transaction identifier (T_ID), chosen by the host.
        transaction: u16 = 4;
        /// Why: 1, authentication failed.
        reason: u8 = 6;
        /// Why exactly: see [`Explanation`].
        explanation: u8 = 7;
    }
}

/// Messages that all protocols have.
pub const COMMON: u8 = 0;
/// Authentication type of DH-HMAC-CHAP messages.
pub const DHCHAP: u8 = 1;
/// "Authentication failed", in [`Failure::reason`].
pub const FAILED: u8 = 1;
/// Where groups begin in [`Protocol::list`].
pub const GROUPS_AT: usize = 30;

/// Which message it is.
#[allow(missing_docs, reason = "the names are the specification's")]
pub mod message {
    pub const NEGOTIATE: u8 = 0x00;
    pub const CHALLENGE: u8 = 0x01;
    pub const REPLY: u8 = 0x02;
    pub const SUCCESS1: u8 = 0x03;
    pub const SUCCESS2: u8 = 0x04;
    pub const FAILURE2: u8 = 0xf0;
    pub const FAILURE1: u8 = 0xf1;
}

/// Why authentication failed (Base figure 449).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Explanation {
    /// The answer is wrong.
    Failed = 1,
    /// No protocol in common.
    Protocol = 2,
    /// Secure channel concatenation mismatch.
    SecureChannel = 3,
    /// No hash function in common.
    Hash = 4,
    /// No group in common.
    Group = 5,
    /// A message that contradicts itself.
    Payload = 6,
    /// A message that is not the one that has to come.
    Message = 7,
}

/// The security protocol of NVMe's own authentication, in the commands that carry it.
const SECURITY_PROTOCOL: u32 = 0xe9 << 24 | 1 << 16 | 1 << 8;

/// Whether a command carries messages of this kind: protocol 0xe9, specific 1 and 1 (Base figure 375).
pub const fn is_ours(command: &Command) -> bool {
    command.cdw10 & 0xffff_ff00 == SECURITY_PROTOCOL
}

/// The command that brings a message of so many bytes, or fetches one.
pub fn command(kind: Fabrics, cid: u16, bytes: u32) -> Command {
    Command {
        cdw10: SECURITY_PROTOCOL,
        cdw11: bytes,
        ..fabrics::fabrics(kind, cid)
    }
}

/// "Authenticate", in the result of Connect (Base figure 380).
pub const CONNECT_AUTHENTICATE: u64 = 1 << 17;
