//! Fabrics commands (Base 6): Connect and its data, properties, disconnecting.

use super::{Command, opcode};
use crate::layout::layouts;

layouts! {
    /// The data of Connect (Base 6.3).
    ConnectData[1024] {
        /// The host, as a UUID.
        host_id: [u8; 16] = 0;
        /// The controller, [`CONTROLLER_DYNAMIC`] for a new one.
        controller_id: u16 = 16;
        /// The subsystem's name.
        subsystem: [u8; 256] = 256;
        /// The host's name.
        host: [u8; 256] = 512;
    }
}

/// Controller ID of a request for any controller (dynamic controller model).
pub const CONTROLLER_DYNAMIC: u16 = 0xffff;
/// Controller ID of a request for a controller that keeps the host's earlier settings (static controller
/// model).
pub const CONTROLLER_STATIC: u16 = 0xfffe;

/// The name that every discovery controller answers to.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Connect's fields (Base 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// Record format: 0.
    pub format: u16,
    /// Queue ID: 0 is the admin queue.
    pub queue_id: u16,
    /// Entries of the submission queue, less one.
    pub size: u16,
    /// Attributes: bit 2 turns submission queue flow control off.
    pub attributes: u8,
    /// How long the host may be silent, in ms; 0 for ever.
    pub keep_alive_ms: u32,
}

/// "No flow control", in [`Connect::attributes`].
pub const CONNECT_NO_FLOW_CONTROL: u8 = 1 << 2;

impl Connect {
    /// The fields of a command.
    pub const fn parse(command: &Command) -> Self {
        Self {
            format: command.cdw10 as u16,
            queue_id: (command.cdw10 >> 16) as u16,
            size: command.cdw11 as u16,
            attributes: (command.cdw11 >> 16) as u8,
            keep_alive_ms: command.cdw12,
        }
    }

    /// The Connect command.
    pub fn to_command(self, cid: u16) -> Command {
        Command {
            cdw10: u32::from(self.format) | u32::from(self.queue_id) << 16,
            cdw11: u32::from(self.size) | u32::from(self.attributes) << 16,
            cdw12: self.keep_alive_ms,
            ..fabrics(opcode::Fabrics::Connect, cid)
        }
    }
}

/// Property Get and Set (Base 6.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Property {
    /// Whether the property has eight bytes instead of four.
    pub wide: bool,
    /// The offset of the property.
    pub offset: u32,
    /// The value to set.
    pub value: u64,
}

impl Property {
    /// The fields of a command; `None` when the size is reserved.
    pub const fn parse(command: &Command) -> Option<Self> {
        let wide = match command.cdw10 & 7 {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self {
            wide,
            offset: command.cdw11,
            value: command.qword12(),
        })
    }

    /// The command that gets or sets it.
    pub fn to_command(self, kind: opcode::Fabrics, cid: u16) -> Command {
        Command {
            cdw10: u32::from(self.wide),
            cdw11: self.offset,
            cdw12: self.value as u32,
            cdw13: (self.value >> 32) as u32,
            ..fabrics(kind, cid)
        }
    }
}

/// A fabrics command without fields of its own.
pub fn fabrics(kind: opcode::Fabrics, cid: u16) -> Command {
    Command {
        opcode: opcode::FABRICS,
        flags: 1 << 6,
        cid,
        nsid: kind as u32,
        ..Command::default()
    }
}

/// Authentication Send and Receive (Base 6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecurityExchange {
    /// Security protocol (SECP): [`SECURITY_NVME`].
    pub protocol: u8,
    /// SP Specific 0 and 1, both 1 for this protocol.
    pub specific: [u8; 2],
    /// Bytes that are sent, or that there is room for.
    pub length: u32,
}

/// The protocol of NVMe's own authentication.
pub const SECURITY_NVME: u8 = 0xe9;

impl SecurityExchange {
    /// The fields of a command.
    pub const fn parse(command: &Command) -> Self {
        Self {
            protocol: (command.cdw10 >> 24) as u8,
            specific: [(command.cdw10 >> 8) as u8, (command.cdw10 >> 16) as u8],
            length: command.cdw11,
        }
    }

    /// The Property Get or Set command.
    pub fn to_command(self, kind: opcode::Fabrics, cid: u16) -> Command {
        Command {
            cdw10: u32::from(self.protocol) << 24
                | u32::from(self.specific[1]) << 16
                | u32::from(self.specific[0]) << 8,
            cdw11: self.length,
            ..fabrics(kind, cid)
        }
    }
}

/// The result of a Connect that failed for its parameters: the place of the wrong one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidParameter {
    /// Bytes from the start of the command or of the data.
    pub offset: u16,
    /// Whether the offset is one in the data instead of the command.
    pub in_data: bool,
}

impl InvalidParameter {
    /// The completion's result with these values.
    pub const fn result(self) -> u64 {
        self.offset as u64 | (self.in_data as u64) << 16
    }
}
