//! What a rule needs of a send request, compared before anything else is asked.

use crate::Opcode;

/// Conditions that are known without a lock: a request that passes none of them meets no fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendFilter {
    /// Bits of the operations ([`Opcode::bit`]).
    pub opcodes: u32,
    /// Number of the queue pair; `None` for any.
    pub qpn: Option<u32>,
    /// The fewest bytes.
    pub from: u64,
    /// The most bytes.
    pub to: u64,
}

impl SendFilter {
    /// Whether the rule could match a request.
    pub fn passes(&self, opcode: Opcode, qpn: u32, size: u64) -> bool {
        self.opcodes & opcode.bit() != 0
            && self.qpn.is_none_or(|wanted| wanted == qpn)
            && (self.from..=self.to).contains(&size)
    }
}
